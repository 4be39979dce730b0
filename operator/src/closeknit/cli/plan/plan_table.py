"""What `closeknit plan` prints for people."""

from collections.abc import Iterator

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from closeknit.api.reasons import ConditionReason, PendingReason
from closeknit.api.text.printable import printable
from closeknit.api.trainingjob_status import PlacementStatus
from closeknit.cli.plan.plan_decision import Placed, PlanRefused
from closeknit.cluster.booking.booking import assignments, names
from closeknit.placement.fragmentation import Fragmentation
from closeknit.placement.values.placement import Placement

_MOST_SHARES = 16  # of a change; -o json has them all


def print_table(
    answer: Placed | PlanRefused, console: Console, supposed: str = "", *, is_relaxed: bool = False
) -> None:
    """Nodes, GPUs, ranks and predicted bandwidth; or why it does not fit, and, if `is_relaxed`, where it would go with
    each of the nearest changes. `supposed` is what was taken for granted."""
    if supposed:
        console.print(_text(f"{supposed}:"))
    job = _text(str(answer.job), style="bold")
    if answer.booked is not None:
        console.print(job + _text(f" {answer.booked}; if the job of the file replaced it:"))
    if isinstance(answer, PlanRefused):
        is_behind = answer.pending.reason == PendingReason.BEHIND_RESERVATION
        console.print(job + _text(f" {'has to wait' if is_behind else 'does not fit'}: {answer.pending.reason}"))
        console.print(_text(answer.pending.message))
        for number, change in enumerate(answer.pending.nearest):
            console.print(_text(f"- {change}"))
            if is_relaxed and number < len(answer.changes):
                console.print(Padding(_shares(answer.changes[number].placement), (0, 0, 0, 2)))
        for clause in answer.later:
            console.print(_text(clause))
        if answer.free.free_gpus:
            console.print(_text(f"free now: {_free(answer.free)}"))
        return
    placement = answer.placement
    console.print(job + _text(f" fits: {_summary(placement)}"))
    console.print(_nodes(placement))
    if placement.parameter_servers:
        console.print(_text(f"parameter servers: {names([each.node for each in placement.parameter_servers])}"))
    console.print(_text(f"predicted all-reduce bus bandwidth: {_bandwidth(placement)}"))
    if placement.limited_by:
        console.print(_text(f"limited by: {placement.limited_by}"))
    is_told = answer.lacks is not None and answer.lacks.reason is ConditionReason.OVER_SOCKETS
    if answer.over_tcp is not None and not is_told:
        console.print(_text(answer.over_tcp))
    if answer.nvls_gb_s is not None:
        words = "where the driver gives NVSwitch multicast (NVLS), which is not counted, NCCL plans"
        console.print(_text(f"{words} {answer.nvls_gb_s:.1f} GB/s"))
    for remark in _remarks(answer):
        console.print(_text(remark))


def _remarks(answer: Placed) -> Iterator[str]:
    if answer.waits_first is not None:
        yield answer.waits_first
    if answer.unknown_preference is not None:
        yield answer.unknown_preference
    if answer.placement.ended_at_budget:
        yield "the search ended at its budget of steps: there may be a better placement"
    if answer.lacks is not None:
        yield f"lacks: {answer.lacks.told(is_booked=answer.booked is not None)}"
    yield from (f"warning: {warning}" for warning in answer.warnings)
    yield from (f"not checked: {unchecked}" for unchecked in answer.unchecked)


def _free(free: Fragmentation) -> str:
    inside = [f"{gpus} in one {level}" for level, gpus in free.largest_inside.items()]
    islands = [f"{count} of {size}" for size, count in sorted(free.islands.items(), reverse=True)]
    words = f"{_count(free.free_gpus, 'GPU')}, {free.broken_gpus} on partly used nodes"
    return f"{words}; the largest gang {', '.join(inside)}; NVLink islands: {', '.join(islands)}"


def _shares(placement: Placement) -> Table:
    """Where a gang would go that is not placed."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("NODE", "GPUS", "RANKS"):
        table.add_column(heading, no_wrap=True)
    for share in placement.shares[:_MOST_SHARES]:
        ranks = share.ranks
        gpus = ",".join(map(str, share.gpus))
        table.add_row(_text(share.node), _text(gpus), f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else f"{ranks[0]}")
    if len(placement.shares) > _MOST_SHARES:
        table.add_row(_text(f"and {len(placement.shares) - _MOST_SHARES} more"), _text(""), "")
    return table


def _nodes(placement: PlacementStatus) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("NODE", "GPUS", "RANKS", "BINDING"):
        table.add_column(heading, no_wrap=True)
    table.add_column("NICS")
    nics: list[str] = []
    for node in assignments(placement):
        nics = node.nics if node.nics is not None else nics
        gpus = ",".join(map(str, node.gpus)) + (f" ({node.mig_device})" if node.mig_device else "")
        table.add_row(_text(node.name), _text(gpus), node.ranks, str(node.binding), _text(", ".join(nics) or "-"))
    return table


def _text(words: str, style: str = "") -> Text:
    """Of the user's files: rich has markup, and terminals have codes of their own."""
    return Text(printable(words), style=style)


def _summary(placement: PlacementStatus) -> str:
    nodes = assignments(placement)
    gpus, noun = (
        sum(len(node.gpus) for node in nodes),
        "MIG device" if any(node.mig_device for node in nodes) else "GPU",
    )
    spans = [_count(count, level) for level, count in (placement.levels or {}).items()]
    on = f"{_count(gpus, noun)} on {_count(placement.node_count, 'node')}"
    spare = f", {_count(len(placement.spares), 'spare node')}" if placement.spares else ""
    return f"{on} in {', '.join(spans)}{spare}" if spans else f"{on}{spare}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _bandwidth(placement: PlacementStatus) -> str:
    predicted, ideal = placement.predicted_bus_bandwidth_gb_s, placement.ideal_bus_bandwidth_gb_s
    if predicted is None:
        return "unknown"
    return f"{predicted:.1f} GB/s" + (f" of {ideal:.1f} at best" if ideal is not None else "")
