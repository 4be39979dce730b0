"""What is asked of autoscalers for jobs, by the objects of a Cluster."""

from dataclasses import dataclass
from typing import Any, Self

from closeknit.api.objects import TrainingJob
from closeknit.cluster.capacity.placeholder import CapacityRefusal, FirstAsk, Placeholder
from closeknit.cluster.capacity.provisioning import ProvisioningRequest
from closeknit.cluster.immutable.table import Table
from closeknit.cluster.node.holders import BookedShare
from closeknit.cluster.store.object_store import ObjectTables
from closeknit.cluster.store.table_definitions import (
    CAPACITY_NOTES,
    PLACEHOLDERS,
    PLACEHOLDERS_OF,
    PLACEHOLDERS_ON,
    PROVISIONING,
    PROVISIONING_OF,
    SERVED,
)

PROVISIONING_SERVED = "provisioningrequests"
"""Name of the ServedKind that says so."""
AskedCapacity = ProvisioningRequest | tuple[Placeholder, ...] | CapacityRefusal
"""What is asked of an autoscaler for a job; or why nothing is."""
_TABLES: tuple[Table[Any, Any], ...] = (PROVISIONING, PLACEHOLDERS, CAPACITY_NOTES, SERVED)


@dataclass(frozen=True, slots=True)
class RequestedCapacity:
    """ProvisioningRequests, placeholder Pods, and notes about both."""

    tables: ObjectTables

    def is_same(self, other: Self) -> bool:
        """Whether all of it is certainly the same."""
        return all(self.tables.all(table) is other.tables.all(table) for table in _TABLES)

    @property
    def is_served(self) -> bool:
        """Whether the API server serves ProvisioningRequests, and lets them be read."""
        return PROVISIONING_SERVED in self.tables.all(SERVED)

    @property
    def requests(self) -> tuple[ProvisioningRequest, ...]:
        """Those of TrainingJobs, by namespace and name."""
        found = self.tables.all(PROVISIONING)
        return tuple(found[key] for key in sorted(found))

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """Placeholder Pods of all jobs, by namespace and name."""
        found = self.tables.all(PLACEHOLDERS)
        return tuple(found[key] for key in sorted(found))

    def placeholders_on(self, node: str) -> tuple[Placeholder, ...]:
        """Those that the scheduler has bound to a node, by namespace and name."""
        return self.tables.under(PLACEHOLDERS_ON, node)

    def booked_without_pods(self, node: str) -> tuple[BookedShare, ...]:
        """The shares that jobs have booked on a node, and whose Pods are not bound there."""
        return self.tables.without_pods(node)

    @property
    def notes(self) -> tuple[CapacityRefusal | FirstAsk, ...]:
        """Why nothing is asked for jobs, or since when placeholder Pods are, by job."""
        found = self.tables.all(CAPACITY_NOTES)
        return tuple(found[key] for key in sorted(found))

    def first_ask_of(self, job: TrainingJob) -> FirstAsk | None:
        """Since when placeholder Pods are asked for the job; None where that is not known."""
        found = self.tables.all(CAPACITY_NOTES).get(job.key)
        return found if isinstance(found, FirstAsk) and found.is_of(job) else None

    def of(self, job: TrainingJob) -> AskedCapacity | None:
        """What is asked of an autoscaler for the job, or why nothing is; None where nothing was. Placeholder Pods are
        of any job of this name. The same object as long as it is unchanged."""
        uid, key = job.metadata.uid, job.key
        refusal = self.tables.all(CAPACITY_NOTES).get(key)
        if isinstance(refusal, CapacityRefusal) and refusal.is_of(job):
            return refusal
        there = self.tables.under(PROVISIONING_OF, key)
        found = next((each for each in there if each.job_uid == uid and not each.is_going), None)
        return found or self.tables.under(PLACEHOLDERS_OF, key) or None
