"""Placeholder Pods of TrainingJobs, for which autoscalers that read no ProvisioningRequests add nodes."""

import re
from typing import NamedTuple

import msgspec

from closeknit.api.names import JOB_LABEL, PLACEHOLDER_LABEL, PLACEHOLDER_PRIORITY, JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.objects.meta import Metadata

_NAME = re.compile(r"(.+)-placeholder-([0-9a-f]{8})-([0-9]{1,4})-of-([0-9]{1,4})")


class PlaceholderName(NamedTuple):
    """The parts of a placeholder Pod's name."""

    job: str
    digest: str
    """Of the job's generation and of what is asked for: another one is asked for another thing."""
    number: int
    """From 0; from `of` on it stands in for one that is on a node which another job holds."""
    of: int
    """How many nodes are asked for."""

    def is_beside(self, other: "PlaceholderName") -> bool:
        """Whether both stand for nodes of one gang, asked for at once."""
        return self._replace(number=0) == other._replace(number=0)

    def __str__(self) -> str:
        return f"{self.job}-placeholder-{self.digest}-{self.number}-of-{self.of}"


class Placeholder(msgspec.Struct, frozen=True):
    """A Pod that stands for one node that a job waits for. It holds nothing: any Pod with another priority takes its
    place, and it goes before the job's own Pods come."""

    namespace: str
    name: str
    uid: str
    job: JobKey
    job_uid: str
    resource: str
    """By which it asks for GPUs."""
    gpus: int
    created: str = ""
    node: str = ""
    """Empty until the scheduler has bound it."""
    is_going: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def parts(self) -> PlaceholderName:
        """The parts of its name."""
        found = placeholder_name(self.name)
        assert found is not None  # noqa: S101 - no other name is read as one
        return found


class _CapacityNote(msgspec.Struct, frozen=True):
    """What the operator remembers of asking for a job: no object of the API server."""

    job: JobKey
    job_uid: str
    generation: int

    def is_of(self, job: TrainingJob) -> bool:
        """Whether it is of this job as it is now."""
        return (self.job_uid, self.generation) == (job.metadata.uid, job.metadata.generation)


class CapacityRefusal(_CapacityNote, frozen=True):
    """Why nothing is asked for a job, and until when."""

    words: str
    until: str


class FirstAsk(_CapacityNote, frozen=True):
    """Since when placeholder Pods are asked for a job, whichever of them are there by now."""

    since: str


def placeholder_name(name: str) -> PlaceholderName | None:
    """The parts of a name; None for that of any other Pod."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    job, digest, number, of = found.groups()
    return PlaceholderName(job, digest, int(number), int(of))


def placeholder_owner(metadata: Metadata, priority: int | None) -> tuple[JobKey, str] | None:
    """The job that a placeholder Pod stands for, with its uid; None for any other Pod.

    Its priority is part of what it is: the scheduler removes it for any Pod of a gang that is placed on its GPUs. So a
    Pod that somebody else makes to look like one hides no GPUs that it could keep.
    """
    labels = metadata.labels or {}
    name = labels.get(PLACEHOLDER_LABEL)
    if name is None or JOB_LABEL in labels or priority is None or priority > PLACEHOLDER_PRIORITY:
        return None
    parts = placeholder_name(metadata.name)
    owner = next((each for each in metadata.owners if each.controller and each.is_training_job), None)
    if parts is None or owner is None or not owner.name == parts.job == name:
        return None
    return JobKey(metadata.namespace or "", owner.name), owner.uid
