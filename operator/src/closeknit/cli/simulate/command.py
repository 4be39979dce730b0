"""`closeknit simulate`: replays a trace, and prints what it came to."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console

from closeknit.api.objects import TrainingJob
from closeknit.cli.input import cluster_file
from closeknit.cli.input.bad_input import BadInput
from closeknit.cli.input.given import check_read_once
from closeknit.cli.plan.plan_decision import NO_CLOCK
from closeknit.cli.simulate.plot import plot
from closeknit.cli.simulate.progress import progress
from closeknit.cli.simulate.simulation_json import as_json
from closeknit.cli.simulate.simulation_table import print_account
from closeknit.cli.simulate.trace import trace
from closeknit.cluster.booking.booking import booking
from closeknit.cluster.cluster import Cluster, build
from closeknit.simulation.account import Bookkeeper, ReplayAccount
from closeknit.simulation.fractional import Sharing
from closeknit.simulation.operated import Operated
from closeknit.simulation.replay import replay
from closeknit.simulation.submission import Submission


@dataclass(frozen=True, slots=True)
class SimulateArguments:
    """Which trace on which cluster, and where the picture goes."""

    trace: Path
    cluster: Path
    plot: Path | None


def simulate(asked: SimulateArguments, clock: datetime, *, is_json: bool) -> ReplayAccount:
    """Replays the trace and prints the account; the progress goes to stderr. Raises BadInput."""
    check_read_once({"TRACE": asked.trace, "--cluster": asked.cluster})
    if asked.plot is not None and asked.plot.suffix.lower() not in ("", ".svg"):
        raise BadInput(asked.plot, None, "", "--plot writes SVG alone: give it a name that ends in .svg")
    jobs = trace(asked.trace)
    cluster = _cluster(asked.cluster)
    if asked.plot is not None:
        _write(asked.plot, "", "a")  # a replay may take an hour; what is there stays until there is something new
    account = _account(jobs, cluster, cluster.newest_heartbeat(clock) or NO_CLOCK)
    if asked.plot is not None:
        _write(asked.plot, plot(account))
    if is_json:
        print(as_json(account))
    else:
        print_account(account, Console())
    return account


def _write(file: Path, text: str, mode: str = "w") -> None:
    try:
        with file.open(mode) as opened:
            opened.write(text)
    except OSError as error:
        raise BadInput(file, None, "", f"cannot be written: {error.strerror}") from None


def _cluster(file: Path) -> Cluster:
    """The cluster of a file without the jobs that wait there: their run times are unknown."""
    found = cluster_file.cluster_file(file).objects
    cluster = build(each for each in found if not isinstance(each, TrainingJob) or booking(each) is not None)
    if not any(view.machine is not None and view.machine.gpus for view in cluster.nodes.values()):
        raise BadInput(file, None, "", "has no node with GPUs (a NodeTopology for each, and its Node)")
    return cluster


def _account(jobs: Sequence[Submission], cluster: Cluster, begins: datetime) -> ReplayAccount:
    queue = Sharing(Operated(cluster, begins))
    book = Bookkeeper(queue, max(job.at_s for job in jobs))
    with progress(2 * len(jobs), Console(stderr=True)) as advance:
        for moment in replay(jobs, queue):
            book.note(moment)
            advance(len(moment.began) + len(moment.went))
    return book.account()
