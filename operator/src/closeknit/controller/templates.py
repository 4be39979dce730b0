"""Which jobs' templates the process keeps: no more of one namespace's waiting jobs than it is allowed."""

from collections import Counter
from collections.abc import Collection

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.job import is_whole, weight_bytes, without_templates
from closeknit.lifecycle import allowance


class Templates:
    """What is kept of each job that is read. Which jobs come first, the schedule says: here is no more than the sum."""

    def __init__(self) -> None:
        self.wanted: Collection[JobKey] = frozenset()
        """Jobs that come first, whatever others have."""
        self._weights: dict[JobKey, int] = {}
        self._sums = Counter[str]()

    def kept(self, job: TrainingJob) -> TrainingJob:
        """The job, without its templates where nobody needs them, or where there is no room for them."""
        self.forget(job.key)
        if not is_whole(job):
            return job
        if not allowance.needs_templates(job):
            return without_templates(job)
        if not allowance.is_waiting(job):
            return job
        has_room = self._sums[job.key.namespace] + weight_bytes(job) <= allowance.ALLOWANCE_BYTES
        if not has_room and job.key not in self.wanted:
            return without_templates(job)
        self.count(job)
        return job

    def count(self, job: TrainingJob) -> None:
        """What is kept of it from now on."""
        self.forget(job.key)
        if is_whole(job) and allowance.is_waiting(job):
            self._weights[job.key] = weight_bytes(job)
            self._sums[job.key.namespace] += self._weights[job.key]

    def forget(self, job: JobKey) -> None:
        """It is gone, or its templates are."""
        weight = self._weights.pop(job, 0)
        self._sums[job.namespace] -= weight
        if not self._sums[job.namespace]:
            del self._sums[job.namespace]
