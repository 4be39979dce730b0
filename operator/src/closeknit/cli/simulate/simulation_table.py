"""What `closeknit simulate` prints for people."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from closeknit.api.text.printable import printable
from closeknit.simulation.account import ReplayAccount, Sample

ROWS = 12  # of the table over time
NAMED = 5  # so many jobs that never began are told


def print_account(account: ReplayAccount, console: Console) -> None:
    """Waits, locality, allocation and fragmentation; over time the GPUs that are allocated, free, free on partly used
    nodes, and that the largest gang inside one domain of each level could have."""
    jobs = f"{account.jobs:,} job{'' if account.jobs == 1 else 's'}"
    console.print(Text(f"{jobs} in {time(account.came_s)}, the last gone after {time(account.ended_s)}", "bold"))
    facts = Table.grid(padding=(0, 2))
    for name, words in _facts(account):
        facts.add_row(Text(name), Text(printable(words)))
    console.print(facts)
    console.print(_over_time(account))
    never = sorted(account.never.items(), key=lambda entry: entry[0].number)
    for job, refusal in never[:NAMED]:
        words = f"- line {job.number}, {job.gpus:g} GPU{'' if job.gpus == 1 else 's'}: {refusal.reason}"
        console.print(Text(printable(f"{words}: {refusal.message}")))
    if len(never) > NAMED:
        console.print(f"- and {len(never) - NAMED:,} more")


def time(seconds: float) -> str:
    """As people say it: `0 s`, `12.5 s`, `6 min`, `2.5 h`, `3.2 d`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def _facts(account: ReplayAccount) -> list[tuple[str, str]]:
    waits, locality = account.waits, account.locality
    found = []
    if waits is not None:
        told = f"mean {time(waits.mean_s)}, half of them {time(waits.p50_s)} at most, 95 % {time(waits.p95_s)} at most"
        found.append(("waits", f"{told}, the longest {time(waits.longest_s)}"))
    if (foretold := account.foretold) is not None:
        told = f"of {foretold.jobs:,} start{'' if foretold.jobs == 1 else 's'}, half of them off by at most "
        told += f"{foretold.median_error:.0%} of the wait, the latest after {foretold.latest:.2g} times what was said"
        found.append(("estimates", told))
    if account.stopped.times:
        told = f"{account.stopped.times:,} time{'' if account.stopped.times == 1 else 's'}"
        found.append(("preemption", f"{told}, which cost {account.stopped.gpu_seconds / 3600:,.1f} GPU-hours"))
    if (resizes := account.resizes).are_any:
        told = f"{resizes.smaller_starts:,} began with fewer GPUs, {resizes.shrunk:,} shrank, {resizes.grown:,} grew, "
        found.append(("elastic jobs", f"{told}{resizes.moved:,} moved"))
    if locality.jobs:
        told = f"{locality.jobs:,} job{'' if locality.jobs == 1 else 's'} of several GPUs"
        if locality.bandwidth_to_ideal is not None and locality.at_ideal is not None:
            told += f": {locality.bandwidth_to_ideal:.1%} of the best possible bandwidth, {locality.at_ideal:.1%} at it"
        found.append(("locality", told))
        found.append(("", ", ".join(f"{count:.2f} {level}s" for level, count in locality.domains.items()) + " each"))
    found.append(("allocation", f"{account.allocated:.1%} of {account.gpus:,} GPUs while jobs came"))
    found.append(("fragmentation", f"{account.scattered:.1%} of what was free lay on nodes that were partly used"))
    if account.never:
        found.append(("never began", f"{len(account.never):,} of the jobs"))
    return found


def _over_time(account: ReplayAccount) -> Table:
    levels = list(account.samples[0].free.largest_inside)
    table = Table(box=None, pad_edge=False, header_style="bold")
    headings = ["TIME", "ALLOCATED", "WAITING", "FREE", "PARTLY USED"]
    for heading in (*headings, *(f"IN ONE {level.upper()}" for level in levels)):
        table.add_column(Text(printable(heading)), justify="right")
    for sample in _some(account.samples):
        free = sample.free
        numbers = (sample.allocated_gpus, sample.waiting_jobs, free.free_gpus, free.broken_gpus)
        table.add_row(time(sample.at_s), *(f"{n:,.4g}" if n < 1000 else f"{n:,.0f}" for n in numbers),
                      *(f"{free.largest_inside[level]:,}" for level in levels))  # fmt: skip
    return table


def _some(samples: Sequence[Sample]) -> list[Sample]:
    step = max(1, -(-(len(samples) - 1) // (ROWS - 1)))
    return [*samples[:-1:step], samples[-1]]
