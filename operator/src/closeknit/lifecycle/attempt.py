"""The current attempt of a job that holds GPUs, and the Pods of it that are there: what is read of it."""

from dataclasses import dataclass, field

from closeknit.api.names import ConditionType
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.booking import Booking
from closeknit.cluster.pod import Pod
from closeknit.launch.gang import Gang
from closeknit.lifecycle import gangs
from closeknit.lifecycle.children import is_released
from closeknit.lifecycle.conditions import is_true
from closeknit.lifecycle.gangs import Lost
from closeknit.lifecycle.subject import Subject


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt."""

    subject: Subject
    booking: Booking
    pods: tuple[Pod | None, ...] = field(init=False)
    """By node rank; None where there is none."""

    def __post_init__(self) -> None:
        there = self.subject.children.of(self.booking.attempt)
        object.__setattr__(self, "pods", tuple(there.get(index) for index in range(len(self.booking.shares))))

    @property
    def present(self) -> tuple[Pod, ...]:
        """Those that are there."""
        return tuple(pod for pod in self.pods if pod is not None)

    @property
    def missing(self) -> list[int]:
        """Node ranks without a Pod."""
        return [index for index, pod in enumerate(self.pods) if pod is None]

    @property
    def ending(self) -> tuple[Pod, ...]:
        """Pods that somebody deletes before they succeeded."""
        return tuple(pod for pod in self.present if pod.deletion_timestamp is not None and pod.phase != "Succeeded")

    def is_released(self, index: int) -> bool:
        """Whether nothing of ours holds back the Pod of one node rank."""
        pod = self.pods[index]
        is_dra = self.booking.shares[index].binding is Binding.DRA
        return pod is not None and is_released(self.subject.cluster, pod, is_dra=is_dra)

    @property
    def is_released_whole(self) -> bool:
        """Whether that is so of every Pod."""
        return all(self.is_released(index) for index in range(len(self.pods)))

    @property
    def has_begun(self) -> bool:
        """Whether any Pod of it was ever released, as far as objects, status and memory tell.

        Where all three are silent (the whole gang deleted before it ran, and the operator restarted since) nothing of
        it is left either, and beginning it again under the same names does no harm.
        """
        return (
            is_true(self.subject.job.status.conditions, ConditionType.RUNNING)
            or self.subject.answers.released == self.booking.attempt
            or any(self.is_released(index) for index in range(len(self.pods)))
        )

    def gang(self) -> Gang | Lost:
        """What launch makes its children of."""
        subject = self.subject
        return gangs.gang(subject.job, self.booking, subject.cluster, ipc_lock=subject.asks_for_ipc_lock)
