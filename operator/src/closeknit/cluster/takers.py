"""Who takes what of a node besides GPUs: a Pod, or a share that is booked for a Pod to come."""

from collections.abc import Collection
from dataclasses import dataclass

from closeknit.api.names import POD_COUNT
from closeknit.cluster.holders import BookedShare
from closeknit.cluster.node import Holder, HolderKind
from closeknit.cluster.pod import Pod
from closeknit.cluster.requests import Amounts


@dataclass(frozen=True, slots=True)
class Taker:
    """One of them; its GPUs are held by its holder, or by its claims."""

    holder: Holder
    """A TrainingJob, or the Pod itself."""
    claims: tuple[str, ...]
    """Names, in the namespace of its holder."""
    amounts: Amounts

    def is_of(self, holders: Collection[Holder]) -> bool:
        """Whether it goes with one of these."""
        space = self.holder.namespace
        return self.holder in holders or any(Holder(HolderKind.CLAIM, space, name) in holders for name in self.claims)


def taker(pod: Pod) -> Taker:
    """A Pod on the node."""
    kind, name = (HolderKind.POD, pod.name) if pod.job is None else (HolderKind.JOB, pod.job.name)
    return Taker(Holder(kind, pod.namespace, name), pod.claims, {**pod.requests, POD_COUNT: 1})


def taker_to_come(share: BookedShare) -> Taker:
    """A share whose Pod is not bound yet."""
    return Taker(Holder(HolderKind.JOB, share.job.namespace, share.job.name), (), dict(share.needs))
