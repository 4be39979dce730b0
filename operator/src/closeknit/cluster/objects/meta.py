"""Common parts of all foreign objects: metadata, owners, conditions and quantities, in the few kept fields.

The structs of this package come out of msgspec: unknown fields are skipped, `null` reads as absent, and a shape that
Kubernetes never prints raises msgspec.ValidationError, which the caller reports for that one object.
"""

from collections.abc import Mapping, Sequence

import msgspec

from closeknit.api.names import API_VERSION, ATTEMPT_LABEL, INDEX_LABEL, JOB_LABEL, ROLE_LABEL, TRAINING_JOB

CHILD_LABELS = (JOB_LABEL, ATTEMPT_LABEL, ROLE_LABEL, INDEX_LABEL)
MOST_OWNERS = 16  # one is what Pods have
_NO_LABELS: Mapping[str, str] = {}  # one for all strangers' Pods, 64 bytes each otherwise


class WireStruct(msgspec.Struct, frozen=True, rename="camel"):
    """Base of everything decoded from the wire: camelCase there, snake_case here."""


class Owner(WireStruct, frozen=True):
    """One entry of ownerReferences."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None

    @property
    def is_training_job(self) -> bool:
        """Whether the owner is a TrainingJob in the version that we write: with another one it was not made for us,
        and no garbage collector takes it away with its job."""
        return self.kind == TRAINING_JOB and self.api_version == API_VERSION

    def is_job(self, uid: str | None) -> bool:
        """Whether the owner is the TrainingJob of this uid: the one rule for a job's own children."""
        return self.uid == uid and self.is_training_job


class Metadata(WireStruct, frozen=True):
    """metadata of a foreign object."""

    name: str
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    owner_references: list[Owner] | None = None

    @property
    def our_labels(self) -> Mapping[str, str]:
        """The labels that identify a child."""
        ours = {key: self.labels[key] for key in CHILD_LABELS if key in self.labels} if self.labels else None
        return ours or _NO_LABELS

    @property
    def owners(self) -> tuple[Owner, ...]:
        """Its owners, cut to a bound."""
        return tuple((self.owner_references or ())[:MOST_OWNERS])


class ForeignCondition(WireStruct, frozen=True):
    """One entry of status.conditions."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


Quantities = dict[str, str | int | float | None]


def owner_of(owners: Sequence[Owner]) -> str:
    """An object's owner, for people."""
    return f"{owners[0].kind} {owners[0].name} (uid {owners[0].uid})" if owners else "nobody that it names"
