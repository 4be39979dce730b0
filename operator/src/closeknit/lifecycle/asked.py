"""What schedule remembers from one decision to the next, so that nothing is decided twice.

Everything is compared by identity: the Cluster shares what has not changed, so that what is the same object is asked
once. None of it alters an answer; without it every job is asked anew, and the same comes out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.pod import Pod
from closeknit.lifecycle.answers import Answers
from closeknit.lifecycle.verdict import Verdict, Wait
from closeknit.placement.request import Request

QueuePlace = tuple[int, bool, str, str, str]
"""Sorts as the queue: priority, age, namespace and name."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What some jobs ask alike, one object for all of them."""

    request: Request


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One job, what it was last asked with, and what came of it."""

    key: JobKey
    uid: str
    job: TrainingJob
    place: QueuePlace
    pods: tuple[Pod, ...]
    answers: Answers
    verdict: Verdict
    shape: Shape | None = None
    """What it asks of placement; None where placement was not asked."""
    until: datetime | None = None
    """When the verdict may be another though nothing has changed."""
    is_settled: bool = True
    """Whether the verdict depends on nothing but what is here, or on the answer to its shape."""
    scene: Cluster | None = None
    """Where it was refused though its own Pods of before count as gone, which nobody else is asked with."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A shape that did not fit, and the words for it."""

    scene: Cluster
    """Where it was last asked; an equal scene gives the same answer."""
    told_of: Cluster
    """The scene that the words speak of."""
    wait: Wait


@dataclass(frozen=True, slots=True, eq=False)
class Schedule(Mapping[JobKey, Verdict]):
    """The verdicts on all jobs, in queue order."""

    cluster: Cluster
    """The one they were made on."""
    scene: Cluster
    """The first Cluster of those that placement cannot tell from it."""
    entries: tuple[Entry, ...] = ()
    by_key: Mapping[JobKey, Entry] = field(default_factory=dict)
    shapes: Mapping[Request, Shape] = field(default_factory=dict)
    refused: Mapping[Shape, Answer] = field(default_factory=dict)
    """In the order in which their words were found, the oldest first."""
    renewed_at: datetime | None = None
    """When old words were last renewed."""
    wake_at: datetime | None = None
    """When a verdict, or the words of one, may be others though nothing has changed."""

    def __getitem__(self, key: JobKey) -> Verdict:
        return self.by_key[key].verdict

    def __iter__(self) -> Iterator[JobKey]:
        return iter(self.by_key)

    def __len__(self) -> int:
        return len(self.by_key)


def is_same_scene(one: Cluster, other: Cluster) -> bool:
    """Whether placement answers every request alike in both."""
    if one is other:
        return True
    return one.forest is other.forest and one.levels == other.levels and one.fabric == other.fabric
