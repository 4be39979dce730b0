"""What the programs in the Pods do: ranks meet, train together, and end. Nobody else knows how a job is to end."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from closeknit.api.names import ATTEMPT_LABEL, INDEX_LABEL
from closeknit.kube.api import JsonObject

Gang = tuple[str, str]
"""The job's uid, and the attempt."""
SHORTEST_S, LONGEST_S = 20.0, 900.0
FAILS = 0.2  # of all programs


@dataclass
class _Run:
    """One attempt of which a rank has started."""

    size: int
    ranks: dict[str, str] = field(default_factory=dict)
    """Index -> uid of the Pod that trains as that rank now."""
    begun_at: float | None = None
    ends_at: float = inf
    failing: str | None = None
    """Index of the rank that fails and leaves the others waiting for ever; None where all succeed."""
    is_broken: bool = False
    """Whether a rank went after the gang had met: the others hang."""
    ended: dict[str, int] = field(default_factory=dict)
    """Index -> exit code."""


class Training:
    """All jobs' programs."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._runs: dict[Gang, _Run] = {}
        self.met: list[Callable[[], None]] = []
        """Called when a gang has met: then its ranks know when they end."""
        self.endless: set[str] = set()
        """Names of jobs that train until they are told to stop."""
        self.succeeded: set[str] = set()
        """uids of jobs whose every rank has ended well."""
        self.failed: set[str] = set()
        """Of those of which one rank has failed."""

    def start(self, pod: JsonObject, now: float) -> None:
        """A rank starts; with the last one the gang has met."""
        gang, index = _rank(pod)
        run = self._runs.setdefault(gang, _Run(_size(pod)))
        run.ranks[index] = pod["metadata"]["uid"]
        if len(run.ranks) < run.size or run.begun_at is not None:
            return
        run.begun_at = now
        for tell in self.met:
            tell()
        name = pod["metadata"]["ownerReferences"][0]["name"]
        if name not in self.endless:
            run.ends_at = now + self._chance.uniform(SHORTEST_S, LONGEST_S)
            run.failing = index if self._chance.random() < FAILS else None

    def stop(self, pod: JsonObject) -> None:
        """A rank is no more, however it went."""
        gang, index = _rank(pod)
        run = self._runs.get(gang)
        if run is None or run.ranks.get(index) != pod["metadata"]["uid"]:
            return
        del run.ranks[index]
        if run.begun_at is not None and index not in run.ended:
            run.is_broken = True

    def ends_at(self, pod: JsonObject) -> float:
        """When this rank ends by itself, as far as can be told now."""
        gang, index = _rank(pod)
        run = self._runs.get(gang)
        if run is None or run.is_broken or run.begun_at is None or (run.failing not in (None, index)):
            return inf
        return run.ends_at + 0.7 * int(index)

    def end(self, pod: JsonObject) -> int:
        """The exit code of a rank that ends now."""
        gang, index = _rank(pod)
        run = self._runs[gang]
        code = run.ended[index] = 0 if run.failing is None else 1
        if code:
            self.failed.add(gang[0])
        elif len(run.ended) == run.size:
            self.succeeded.add(gang[0])
        return code


def _rank(pod: JsonObject) -> tuple[Gang, str]:
    metadata = pod["metadata"]
    labels = metadata["labels"]
    return (metadata["ownerReferences"][0]["uid"], labels[ATTEMPT_LABEL]), labels[INDEX_LABEL]


def _size(pod: JsonObject) -> int:
    """As the framework's variables tell the rank."""
    variables = {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}
    return int(variables["PET_NNODES"].split(":")[-1])
