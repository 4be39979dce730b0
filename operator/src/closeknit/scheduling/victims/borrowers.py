"""Jobs to which spare nodes are lent, and which of them have to go once the owner of these needs them."""

from collections.abc import Callable, Sequence
from datetime import datetime

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.placement.values.placement import Placement
from closeknit.scheduling.victims.cheapest_victims import Does, first_that_do, without_needless
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


def to_recall(
    there: Sequence[Victim], fits: Does[Victim], place: Callable[[Sequence[Victim]], Placement | None]
) -> tuple[Victim, ...] | None:
    """Those of the borrowers that have to go; nobody where what goes anyway is enough, and None where all are not. The
    nodes are emptied one after the other, those first that cost least, until the owner fits."""
    if fits(()):
        return ()
    found = first_that_do(_by_node(there), fits)
    if found is None:
        return None
    placement = place(found)
    if placement is not None:
        nodes = {share.node for share in placement.shares}
        fewer = tuple(each for each in found if not nodes.isdisjoint(each.gpus))
        found = fewer if fits(fewer) else found
    chosen = [each for each in there if each in found]
    dearest, rest = chosen[:MOST_SPARED], chosen[MOST_SPARED:]
    return (*without_needless(dearest, lambda some: fits((*some, *rest))), *rest)


def _by_node(there: Sequence[Victim]) -> list[tuple[Victim, ...]]:
    """The borrowers node by node, those nodes first that are emptied at the least cost, and with the fewest ends."""
    on: dict[str, list[Victim]] = {}
    for victim in there:
        for node in victim.gpus:
            on.setdefault(node, []).append(victim)
    order = sorted(on, key=lambda node: (sum(each.lost_gpu_s for each in on[node]), len(on[node]), node))
    gone: set[Victim] = set()
    steps: list[tuple[Victim, ...]] = []
    for node in order:
        step = tuple(victim for victim in on[node] if victim not in gone)
        gone.update(step)
        steps += [step] if step else []
    return steps
