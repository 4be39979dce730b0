"""A stored job as its status is read, and whether it is over."""

from typing import Protocol

from closeknit.api.names import JobKey
from closeknit.api.objects import ObjectMeta
from closeknit.api.reasons import ConditionType
from closeknit.api.trainingjob_status import (
    TrainingJobStatus,
)
from closeknit.lifecycle.status.conditions import (
    is_true,
)


class StoredJob(Protocol):
    """A stored job, with a readable spec or not."""

    @property
    def key(self) -> JobKey:
        """Namespace and name."""
        ...

    @property
    def metadata(self) -> ObjectMeta:
        """Name, generation."""
        ...

    @property
    def status(self) -> TrainingJobStatus:
        """Its stored status."""
        ...


def is_finished(job: StoredJob) -> bool:
    """Whether the job is over."""
    return any(is_true(job.status.conditions, end) for end in (ConditionType.SUCCEEDED, ConditionType.FAILED))
