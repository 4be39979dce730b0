"""closeknit_rank_info: which rank of which job has which GPU, as lines of /metrics.

They are written by the thread that decides, and a scrape copies them: 4,096 lines are 0.9 MB. They are the only ones
with words of tenants, and are left out as a whole beyond a bound, for half of them would look like all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import Booking, BookingShare
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.pods.pod import Pod
from closeknit.lifecycle.attempt.launched_gang import uuids
from closeknit.lifecycle.attempt.own_pods import children
from closeknit.lifecycle.attempt.verification import got

NAME = "closeknit_rank_info"
LABELS = ("job", "namespace", "rank", "uuid", "node", "pod_uid")
HELP = (
    "Always 1, for each rank whose Pod is bound to a node: the GPU that it has. Left out while there are more ranks "
    "than --rank-info-limit. To be joined with the metrics of GPUs by uuid."
)
LIMIT = 4096  # ranks: 0.9 MB of the 2 MB that a scrape may have


@dataclass(frozen=True, slots=True)
class RankInfo:
    """The lines, and for how many ranks there are some."""

    ranks: int
    """Ranks whose Pod is bound."""
    text: bytes
    """Empty where they are more than the limit."""


def rank_info(cluster: Cluster, limit: int) -> RankInfo:
    """The lines of all ranks, in the order of their jobs."""
    held = [(job, booking) for job in cluster.jobs.values() if (booking := cluster.booking_of(job.key)) is not None]
    placed = [(job, share, pod) for job, booking in held for share, pod in _bound(job, booking, cluster)]
    ranks = sum(len(share.gpus) for _, share, _ in placed)
    if ranks > limit or not ranks:
        return RankInfo(ranks, b"")
    placed.sort(key=lambda each: (each[0].key, each[1].first_rank))
    lines = [line for job, share, pod in placed for line in _lines(cluster, job, share, pod)]
    return RankInfo(ranks, "".join([f"# HELP {NAME} {HELP}\n# TYPE {NAME} gauge\n", *lines]).encode())


def _bound(job: TrainingJob, booking: Booking, cluster: Cluster) -> Iterator[tuple[BookingShare, Pod]]:
    """The workers' shares whose Pod has its node."""
    for position, pod in children(job, cluster).of(booking).items():
        if position < booking.workers and pod.node and pod.is_live:
            yield booking.shares[position], pod


def _lines(cluster: Cluster, job: TrainingJob, share: BookingShare, pod: Pod) -> Iterator[str]:
    names = f'job="{_quoted(job.key.name)}",namespace="{_quoted(job.key.namespace)}"'
    place = f'node="{_quoted(pod.node)}",pod_uid="{_quoted(pod.uid)}"'
    for rank, uuid in zip(share.ranks, _in_rank_order(cluster, share, pod), strict=False):
        yield f'{NAME}{{{names},rank="{rank}",uuid="{_quoted(uuid)}",{place}}} 1\n'


def _in_rank_order(cluster: Cluster, share: BookingShare, pod: Pod) -> tuple[str, ...]:
    """UUIDs of the Pod's GPUs by local rank: the planned ones, unless it is known to have others. These a program
    numbers as NVML does. Empty where they are unknown."""
    view = cluster.nodes.get(pod.node)
    if view is None:
        return ()
    planned, given = uuids(view, share) or (), got(cluster, share, pod)
    if given is None or sorted(planned) == list(given):
        return planned
    order = _numbers(view)
    return tuple(sorted(given, key=lambda uuid: (order.get(uuid, len(order)), uuid)))


def _numbers(view: NodeView) -> dict[str, int]:
    return {gpu.uuid: gpu.index for gpu in view.machine.gpus if gpu.uuid} if view.machine is not None else {}


def _quoted(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
