"""The jobs that make room for another one: of those that may go, the ones without which it fits."""

from collections.abc import Sequence

from closeknit.api.trainingjob_status import MAX_AWAITED
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.avoided_nodes import AvoidedNodes
from closeknit.placement.values.request import Request
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.preemption.trial_placement import placed
from closeknit.scheduling.queue.entries import Case
from closeknit.scheduling.victims.victim import Victim, gone
from closeknit.scheduling.victims.victim_search import ChosenVictims, Ground, search_victims


def select_victims(
    case: Case, asked: Request, away: AvoidedNodes, soon: Cluster, there: Sequence[Victim], walk: Walk
) -> ChosenVictims | None:
    """Who has to go, of these. `soon` is the cluster once all are gone that go anyway."""

    def without(some: Sequence[Victim]) -> Cluster:
        changes = (each for victim in some for each in gone(soon, victim.job))
        return soon.after(tuple(changes)).without(away.devices)

    def can_place(cluster: Cluster) -> bool:
        return walk.questions.can_place(asked, cluster)

    ground = Ground(soon, without, lambda cluster: placed(case, asked, cluster, walk), can_place)
    made = search_victims(ground, asked, there) if there else None
    return None if made is None or len(made.victims) > MAX_AWAITED else made
