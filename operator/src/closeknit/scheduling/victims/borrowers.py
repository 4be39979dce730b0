"""Jobs to which spare nodes are lent, and which of them have to go once the owner of these needs them."""

from collections.abc import Sequence
from datetime import datetime

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.scheduling.victims.cheapest_victims import Does, without_needless
from closeknit.scheduling.victims.victim import Victim, victims

MOST_SPARED = 64  # of more borrowers these are tried to be spared one by one, the dearest first


def borrowers(
    owner: TrainingJob, cluster: Cluster, now: datetime, spares: frozenset[str] = frozenset()
) -> list[Victim]:
    """Jobs on its spare nodes, and on these of its queue, that it may end, the dearest first; not those that make room
    already."""
    there = set[JobKey]()
    if cluster.may_preempt(owner):
        there.update(cluster.borrowers_of(owner.key), cluster.booked_there(spares))
    if not there:
        return []
    return [each for each in reversed(victims(cluster, cluster.priority(owner), now)) if each.key in there]


def to_recall(there: Sequence[Victim], fits: Does[Victim]) -> tuple[Victim, ...] | None:
    """Those of the borrowers that have to go; nobody where what goes anyway is enough, and None where all are not."""
    if fits(()):
        return ()
    if not there or not fits(there):
        return None
    dearest, rest = there[:MOST_SPARED], there[MOST_SPARED:]
    return (*without_needless(dearest, lambda some: fits((*some, *rest))), *rest)
