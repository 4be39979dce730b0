"""Users of a node besides GPUs: a Pod, or a share booked for a coming Pod."""

from collections.abc import Collection
from dataclasses import dataclass

from closeknit.api.names import POD_COUNT
from closeknit.cluster.node.holders import BookedShare
from closeknit.cluster.node.node import Holder, HolderKind
from closeknit.cluster.objects.pod_requests import Amounts
from closeknit.cluster.pods.pod import Pod


@dataclass(frozen=True, slots=True)
class GpuUser:
    """One user; its holder, or its claims, hold its GPUs."""

    holder: Holder
    """A TrainingJob, or the Pod itself."""
    claims: tuple[str, ...]
    """Names, in the namespace of its holder."""
    amounts: Amounts

    def is_of(self, holders: Collection[Holder]) -> bool:
        """Whether it goes with one of these."""
        space = self.holder.namespace
        return self.holder in holders or any(Holder(HolderKind.CLAIM, space, name) in holders for name in self.claims)


def gpu_user(pod: Pod) -> GpuUser:
    """A Pod on the node."""
    kind, name = (HolderKind.POD, pod.name) if pod.job is None else (HolderKind.JOB, pod.job.name)
    return GpuUser(Holder(kind, pod.namespace, name), pod.claims, {**pod.requests, POD_COUNT: 1})


def gpu_user_to_come(share: BookedShare) -> GpuUser:
    """A share whose Pod is not bound yet."""
    return GpuUser(Holder(HolderKind.JOB, share.job.namespace, share.job.name), (), dict(share.needs))
