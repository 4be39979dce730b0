"""ProvisioningRequests of TrainingJobs, by which cluster-autoscaler is asked for nodes (autoscaling.x-k8s.io/v1)."""

import msgspec

from closeknit.api.names import GENERATION_LABEL, JobKey
from closeknit.cluster.objects.meta import ForeignCondition, Metadata, WireStruct

AUTOSCALING_GROUP, AUTOSCALING_VERSION = "autoscaling.x-k8s.io", "v1"
PROVISIONING_REQUEST = "ProvisioningRequest"
_MOST_CONDITIONS = 16
# The conditions by which cluster-autoscaler answers, the latest first (its proposal provisioning-request).
_ANSWERS = ("Failed", "CapacityRevoked", "BookingExpired", "Provisioned", "Accepted")


class ProvisioningRequest(msgspec.Struct, frozen=True):
    """A ProvisioningRequest that a TrainingJob owns."""

    namespace: str
    name: str
    uid: str
    job: JobKey
    job_uid: str
    created: str | None
    class_name: str
    generation: str = ""
    """Of the job that it was made for."""
    is_going: bool = False
    answer: str = ""
    """The last condition that is True; empty before any is."""
    message: str = ""
    answered: str | None = None
    """Since when."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.answer in {"Failed", "CapacityRevoked", "BookingExpired"}


class _WireSpec(WireStruct, frozen=True):
    provisioning_class_name: str = ""


class _WireStatus(WireStruct, frozen=True):
    conditions: list[ForeignCondition] | None = None


class WireProvisioningRequest(WireStruct, frozen=True):
    """A ProvisioningRequest on the wire."""

    metadata: Metadata
    spec: _WireSpec | None = None
    status: _WireStatus | None = None


def provisioning_request(wire: WireProvisioningRequest) -> ProvisioningRequest | None:
    """The kept request; None for one of another owner."""
    metadata = wire.metadata
    owner = next((each for each in metadata.owners if each.controller and each.is_training_job), None)
    if owner is None:
        return None
    conditions = ((wire.status and wire.status.conditions) or [])[:_MOST_CONDITIONS]
    so = {each.type: each for each in conditions if each.status == "True"}
    said = next((so[kind] for kind in _ANSWERS if kind in so), None)
    return ProvisioningRequest(
        namespace=metadata.namespace or "",
        name=metadata.name,
        uid=metadata.uid or "",
        job=JobKey(metadata.namespace or "", owner.name),
        job_uid=owner.uid,
        created=metadata.creation_timestamp,
        class_name=wire.spec.provisioning_class_name if wire.spec else "",
        generation=(metadata.labels or {}).get(GENERATION_LABEL, ""),
        is_going=metadata.deletion_timestamp is not None,
        answer=said.type if said else "",
        message=(said.message or "") if said else "",
        answered=said.last_transition_time if said else None,
    )
