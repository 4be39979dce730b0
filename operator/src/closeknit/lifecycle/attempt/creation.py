"""How the children of an attempt are created, and in which order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from closeknit.api.names import INDEX_LABEL, ROLE_LABEL, service_name
from closeknit.cluster.pods.pod import Pod
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.manifests.children import children
from closeknit.launch.manifests.claim import claim
from closeknit.launch.manifests.owner import owned
from closeknit.launch.manifests.pod_manifest import pod, pods
from closeknit.lifecycle.writes.plan import Action, Addition, Create, Delete

# A gang has Pods of one size, and another one where it takes parts of nodes; more sizes come of unequal machines.
MOST_TRIED = 8


@dataclass(frozen=True, slots=True)
class Creation:
    """The creates of one Plan for an attempt."""

    opening: tuple[Create, ...] = ()
    """See Plan."""
    actions: tuple[Action, ...] = ()

    @property
    def manifests(self) -> Iterator[Manifest]:
        """All that it creates."""
        for action in (*self.opening, *self.actions):
            if isinstance(action, Create):
                yield action.manifest
                yield from action.owns


def additions(gang: Gang) -> frozenset[Addition]:
    """Optional additions to the template of its Pods."""
    asked = {
        Addition.IPC_LOCK: gang.uses_rdma and gang.ipc_lock,
        Addition.CPUS: gang.gives_cpus,
        Addition.SIDECAR: bool(gang.sidecar_image),
    }
    return frozenset(addition for addition, is_asked in asked.items() if is_asked)


def whole(gang: Gang, *, with_others: bool) -> Creation:
    """All Pods of a new gang, each with its claim, and the other children unless they are known to exist. The first Pod
    comes before the others: a fault of one is usually a fault of all."""
    first, *rest = _pods(gang, range(len(gang.members)))
    others, old = _others(gang) if with_others else ((), ())
    return Creation(opening=(*others, first), actions=(*old, *rest))


def trials(gang: Gang) -> tuple[Manifest, ...]:
    """One child of each kind, and one Pod of each size with its claim, to be tried before a gang that runs ends for
    this one. A Secret is not among them: the job has it already.

    What a Pod or a Service is to own has the uid of the job instead of theirs, which have none before they are made.
    """
    found: dict[object, Create] = {}
    for create in _others(gang)[0]:
        found.setdefault(create.manifest["kind"], create)
    sizes: dict[object, int] = {}
    for index, member in enumerate(gang.members):
        sizes.setdefault((member.role, member.rank_count, member.cpus, member.is_claimed, member.nic_resources), index)
    pods = _pods(gang, list(sizes.values())[:MOST_TRIED])
    uid = gang.job.metadata.uid or ""
    return with_owned((*found.values(), *pods), uid)


def with_owned(creates: Iterable[Create], uid: str) -> tuple[Manifest, ...]:
    """All that these create, but Secrets, as a trial: what one is to own has this uid of an owner."""
    return tuple(
        manifest
        for create in creates
        for manifest in (create.manifest, *(owned(each, create.manifest, uid) for each in create.owns))
        if manifest["kind"] != "Secret"
    )


def as_now(refused: Manifest, gang: Gang) -> Manifest:
    """The refused child as it would be made for this gang, to be tried again: its size, its priority class and the
    policy may have changed. Where the gang has none of that name, the first of that kind; else its first Pod."""
    metadata, kind, uid = refused["metadata"], refused["kind"], gang.job.metadata.uid or ""
    if kind in {"Pod", "ResourceClaim"}:
        labels = metadata["labels"]
        role, index = labels[ROLE_LABEL], labels[INDEX_LABEL]
        there = [at for at, each in enumerate(gang.members) if kind == "Pod" or each.is_claimed]
        same = [at for at in there if (gang.members[at].role, str(gang.members[at].index)) == (role, index)]
        made = with_owned(_pods(gang, (same or there)[:1]), uid)
    else:
        made = (*with_owned(_others(gang)[0], uid), *children(gang).of_job)
    alike = {each["metadata"]["name"]: each for each in made if each["kind"] == kind}
    return alike.get(metadata["name"]) or next(iter(alike.values()), None) or pod(gang, 0)


def missing(gang: Gang, indexes: Sequence[int], *, with_others: bool) -> Creation:
    """The Pods of these members of a gang that exists in part."""
    others, old = _others(gang) if with_others else ((), ())
    return Creation(actions=(*others, *old, *_pods(gang, indexes)))


def claim_of(gang: Gang, index: int, pod: Pod) -> Create:
    """Only the claim of an existing Pod."""
    return Create(owned(claim(gang, index), {"kind": "Pod", "metadata": {"name": pod.name}}, pod.uid))


def _pods(gang: Gang, indexes: Sequence[int]) -> tuple[Create, ...]:
    return tuple(
        Create(manifest, (claim(gang, index),) if gang.members[index].is_claimed else ())
        for index, manifest in zip(indexes, pods(gang, indexes), strict=True)
    )


def _others(gang: Gang) -> tuple[tuple[Create, ...], tuple[Delete, ...]]:
    """The children of the attempt beside its Pods, its Service first; and the deletion of the last attempt's
    Service."""
    there = children(gang)
    made = (Create(there.service, there.of_service), *map(Create, there.of_job))
    before = Delete("Service", service_name(gang.job.metadata.name, gang.attempt - 1))
    return made, (before,) if gang.attempt > 1 else ()
