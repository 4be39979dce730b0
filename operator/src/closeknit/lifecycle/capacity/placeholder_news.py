"""Which placeholder Pods of one job stay, which go, and which are made.

Such a Pod stands for a node that the gang may get. Where a job holds the node's GPUs, and no Pod of it is there, the
node looks free to the scheduler. A placeholder that is bound there is no news: while the holder's Pods are not due it
stays, so that no other one is bound there, and one more is made in its place. (Karpenter asks for no node for a Pod
whose affinity names nodes that it keeps off.)
"""

from collections.abc import Sequence
from typing import NamedTuple

from closeknit.api.names import Role
from closeknit.cluster.capacity.placeholder import Placeholder, PlaceholderName
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.holders import BookedShare

MOST_PLACEHOLDERS = 256  # Pods of one job, so of MOST_REQUESTS jobs 1,024: the scheduler tries each again and again
MOST_STAND_INS = 64  # more of them of one job, in place of such on nodes that others hold; none after that


class PlaceholderNews(NamedTuple):
    """What changes of a job's placeholder Pods."""

    gone: tuple[Placeholder, ...]
    missing: tuple[PlaceholderName, ...]
    """Only where none goes: the names, and the GPUs, of those are free then."""


def placeholder_news(there: Sequence[Placeholder], first: PlaceholderName, cluster: Cluster) -> PlaceholderNews:
    """The news of those of one job, which are to be called as the `first` one is, but for their numbers."""
    ours = [each for each in there if each.parts.is_beside(first)]
    stay = [each for each in ours if not (each.is_going or _is_in_the_way(each, cluster))]
    news = [each for each in stay if not (each.node and cluster.capacity.booked_without_pods(each.node))]
    surplus = sorted(news, key=lambda each: (bool(each.node), -each.parts.number))[: max(0, len(news) - first.of)]
    kept = {each.name for each in stay} - {each.name for each in surplus}
    gone = tuple(each for each in there if not (each.is_going or each.name in kept))
    if gone:
        return PlaceholderNews(gone, ())
    ending = len(ours) - len(stay)
    wanted = max(0, min(first.of - len(news), first.of + MOST_STAND_INS - len(stay)) - ending)
    taken = {each.parts.number for each in ours}
    free = [number for number in range(len(taken) + wanted) if number not in taken]
    return PlaceholderNews((), tuple(first._replace(number=number) for number in free[:wanted]))


def _is_in_the_way(each: Placeholder, cluster: Cluster) -> bool:
    """Whether Pods of a gang are due on its node: on GPUs of a node that others use in part, they would get others."""
    return bool(each.node) and any(_is_due(share, cluster) for share in cluster.capacity.booked_without_pods(each.node))


def _is_due(share: BookedShare, cluster: Cluster) -> bool:
    """Whether a booked share is to have its Pod now: not that of a spare, nor that of a gang which waits for the rest
    of its room, nor one whose Pod has succeeded."""
    held = cluster.booking_of(share.job)
    if held is None or held.awaits or held.lost:
        return False
    position = share.index + (held.workers if share.role is Role.PARAMETER_SERVER else 0)
    return position < len(held.shares) and not held.shares[position].succeeded
