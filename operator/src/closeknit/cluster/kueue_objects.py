"""What Kueue says of jobs, by the objects of a Cluster."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from closeknit.api.names import QUEUE_LABEL, JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.immutable.table import EMPTY, Table
from closeknit.cluster.kueue.admission import Admission, admission
from closeknit.cluster.kueue.workload import Workload, own
from closeknit.cluster.store.object_store import ObjectTables
from closeknit.cluster.store.table_definitions import (
    RESOURCE_FLAVORS,
    SERVED,
    SUBMITTED,
    WORKLOAD_PRIORITIES,
    WORKLOADS,
    WORKLOADS_OF,
)

WORKLOADS_SERVED = "workloads"
"""Name of the ServedKind that says so."""
_TABLES: tuple[Table[Any, Any], ...] = (WORKLOADS, RESOURCE_FLAVORS, WORKLOAD_PRIORITIES, SERVED)


@dataclass(frozen=True, slots=True)
class KueueObjects:
    """Workloads, and what else of Kueue's counts for them."""

    tables: ObjectTables

    def is_same(self, other: Self) -> bool:
        """Whether all of it is certainly the same."""
        return all(self.tables.all(table) is other.tables.all(table) for table in _TABLES)

    @property
    def is_served(self) -> bool:
        """Whether the API server serves Kueue's Workloads, and lets them be read."""
        return WORKLOADS_SERVED in self.tables.all(SERVED)

    def workload_of(self, job: TrainingJob) -> Workload | None:
        """The job's own Workload; None without one. The same object as long as it is unchanged."""
        return own(self.tables.under(WORKLOADS_OF, job.key), job.metadata.name, job.metadata.uid)

    def lets_hold(self, job: TrainingJob) -> bool:
        """Whether a job may hold GPUs as far as Kueue goes: it is in no LocalQueue, or its Workload is admitted."""
        workload = self.workload_of(job)
        return not job.metadata.labels.get(QUEUE_LABEL) or (workload is not None and workload.is_admitted)

    def admission_of(self, job: TrainingJob, workload: Workload) -> Admission:
        """What its admitted Workload adds to a job's Pods."""
        return admission(workload, job.spec, self.tables.all(RESOURCE_FLAVORS))

    def as_submitted(self, job: TrainingJob) -> TrainingJob:
        """The job as its author wrote it, without what Kueue adds."""
        return self.tables.all(SUBMITTED).get(job.key, job)

    @property
    def jobs(self) -> Collection[JobKey]:
        """Keys of the jobs that own Workloads, in no order."""
        found: Mapping[JobKey, tuple[Workload, ...]] = self.tables.filed.get(WORKLOADS_OF, EMPTY)
        return found.keys()

    def priority(self, name: str) -> int | None:
        """The value of a WorkloadPriorityClass; None where it is not there."""
        found = self.tables.all(WORKLOAD_PRIORITIES).get(name)
        return None if found is None else found.value
