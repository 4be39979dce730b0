"""How many GPUs of the cluster are in which state, as metrics count them."""

from collections.abc import Mapping
from enum import StrEnum

from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node import NodeView
from closeknit.cluster.view import is_unhealthy


class GpuState(StrEnum):
    """The one state that a GPU is counted in; the first that holds, in this order."""

    UNHEALTHY = "unhealthy"
    BOOKED = "booked"  # held by a job, a Pod or a claim of anybody
    EXCLUDED = "excluded"  # out of reach: MIG, nothing offers it, or its whole node is left out
    FREE = "free"


def in_use(cluster: Cluster) -> Mapping[GpuState, int]:
    """GPUs of all machines by state; the counts add up to the GPUs there are."""
    counts = dict.fromkeys(GpuState, 0)
    for view in cluster.nodes.values():
        for state, count in node_in_use(view).items():
            counts[state] += count
    return counts


def node_in_use(view: NodeView) -> Mapping[GpuState, int]:
    """GPUs of one machine by state."""
    indexes = [gpu.index for gpu in view.machine.gpus] if view.machine else []
    unhealthy = sum(is_unhealthy(view.unusable.get(index, "")) for index in indexes)
    booked = sum(index in view.holders and not is_unhealthy(view.unusable.get(index, "")) for index in indexes)
    free = len(view.free) if view.exclusion is None else 0
    if view.plugin is not None and view.exclusion is None and not view.plugin.shared:
        # Of GPUs that were handed out without a word which, only the number is known.
        handed_out = max(0, free - view.plugin.free)
        free -= handed_out
        booked += handed_out if not view.plugin.holders_known else 0
    excluded = len(indexes) - unhealthy - booked - free
    return {
        GpuState.UNHEALTHY: unhealthy,
        GpuState.BOOKED: booked,
        GpuState.EXCLUDED: excluded,
        GpuState.FREE: free,
    }
