"""How the children of an attempt come into being: what is made of it, and what first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from closeknit.api.names import service_name
from closeknit.cluster.pods.pod import Pod
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.manifests.children import children
from closeknit.launch.manifests.claim import claim
from closeknit.launch.manifests.owner import owned
from closeknit.launch.manifests.pod_manifest import pods
from closeknit.lifecycle.writes.plan import Action, Addition, Create, Delete


@dataclass(frozen=True, slots=True)
class Creation:
    """What a Plan makes of an attempt."""

    opening: tuple[Create, ...] = ()
    """See Plan."""
    actions: tuple[Action, ...] = ()

    @property
    def manifests(self) -> Iterator[Manifest]:
        """All that is made."""
        for action in (*self.opening, *self.actions):
            if isinstance(action, Create):
                yield action.manifest
                yield from action.owns


def additions(gang: Gang) -> frozenset[Addition]:
    """What its Pods ask for beyond their template, and can do without."""
    asked = {Addition.IPC_LOCK: gang.uses_rdma and gang.ipc_lock, Addition.CPUS: gang.gives_cpus}
    return frozenset(addition for addition, is_asked in asked.items() if is_asked)


def whole(gang: Gang, *, with_others: bool) -> Creation:
    """All Pods of a gang of which none is there, each with its claim, and what it has beside them unless that is known
    to exist. The first Pod comes before the others: what is wrong with one is wrong with all, as a rule."""
    first, *rest = _pods(gang, range(len(gang.members)))
    others, old = _others(gang) if with_others else ((), ())
    return Creation(opening=(*others, first), actions=(*old, *rest))


def missing(gang: Gang, indexes: Sequence[int], *, with_others: bool) -> Creation:
    """The Pods of these members of a gang, others of which are there."""
    others, old = _others(gang) if with_others else ((), ())
    return Creation(actions=(*others, *old, *_pods(gang, indexes)))


def claim_of(gang: Gang, index: int, pod: Pod) -> Create:
    """The claim alone of a Pod that is there."""
    return Create(owned(claim(gang, index), {"kind": "Pod", "metadata": {"name": pod.name}}, pod.uid))


def _pods(gang: Gang, indexes: Sequence[int]) -> tuple[Create, ...]:
    return tuple(
        Create(manifest, (claim(gang, index),) if gang.members[index].is_claimed else ())
        for index, manifest in zip(indexes, pods(gang, indexes), strict=True)
    )


def _others(gang: Gang) -> tuple[tuple[Create, ...], tuple[Delete, ...]]:
    """What the attempt has beside its Pods, its Service first; and the Service of the attempt before, which goes."""
    there = children(gang)
    made = (Create(there.service, there.of_service), *map(Create, there.of_job))
    before = Delete("Service", service_name(gang.job.metadata.name, gang.attempt - 1))
    return made, (before,) if gang.attempt > 1 else ()
