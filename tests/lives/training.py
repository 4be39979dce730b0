"""What the programs in the Pods do: ranks meet, train together, and end. Nobody else knows how a job is to end."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from closeknit.api.names import INDEX_LABEL, child_named
from closeknit.kube.api import JsonObject

Gang = tuple[str, int]
"""The job's uid, and the attempt."""
SHORTEST_S, LONGEST_S = 20.0, 900.0
FAILS = 0.2  # of all programs


@dataclass
class _Run:
    """One run of an attempt, of which a rank has started."""

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

    @property
    def is_whole(self) -> bool:
        """Whether all its ranks train."""
        return len(self.ranks) == self.size and not self.is_broken and not self.ended


class Training:
    """All jobs' programs."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._runs: dict[tuple[Gang, int], _Run] = {}
        """By the gang, and how often it had begun before in these Pods."""
        self.met: list[Callable[[], None]] = []
        """Called when a gang has met: then its ranks know when they end."""
        self.endless: set[str] = set()
        """Names of jobs that train until they are told to stop."""
        self.succeeded: set[str] = set()
        """uids of jobs whose every rank has ended well."""
        self.failed: set[str] = set()
        """Of those of which one rank has failed."""

    def start(self, pod: JsonObject, now: float, number: int = 0, size: int | None = None) -> None:
        """A rank starts, in the run of this number, and of so many where its sidecar tells it; with the last one the
        gang has met."""
        index = _index(pod)
        run = self._runs.setdefault((gang_of(pod), number), _Run(size or _size(pod)))
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

    def stop(self, pod: JsonObject, number: int = 0) -> None:
        """A rank is no more, however it went."""
        index = _index(pod)
        run = self._runs.get((gang_of(pod), number))
        if run is None or run.ranks.get(index) != pod["metadata"]["uid"]:
            return
        del run.ranks[index]
        if run.begun_at is not None and index not in run.ended:
            run.is_broken = True

    def crash(self, chance: random.Random, now: float) -> str:
        """A rank of some gang that trains fails now; which, in words. Empty where none trains."""
        found = [(run, gang) for gang, run in self._runs.items() if run.is_whole]
        if not found:
            return ""
        run, ((uid, attempt), number) = chance.choice(found)
        run.failing, run.ends_at = chance.choice(sorted(run.ranks)), now
        for tell in self.met:
            tell()
        return f"rank {run.failing} of {uid} crashes in attempt {attempt}, run {number}"

    def ends_at(self, pod: JsonObject, number: int = 0) -> float:
        """When this rank ends by itself, as far as can be told now."""
        index = _index(pod)
        run = self._runs.get((gang_of(pod), number))
        if run is None or run.is_broken or run.begun_at is None or (run.failing not in (None, index)):
            return inf
        return run.ends_at + 0.7 * int(index)

    def end(self, pod: JsonObject, number: int = 0) -> int:
        """The exit code of a rank that ends now."""
        gang, index = gang_of(pod), _index(pod)
        run = self._runs[gang, number]
        code = run.ended[index] = 0 if run.failing is None else 1
        if code:
            self.failed.add(gang[0])
        elif len(run.ended) == run.size:
            self.succeeded.add(gang[0])
        return code


def gang_of(pod: JsonObject) -> Gang:
    """The gang of a Pod of ours; the label of its attempt may have been emptied."""
    child = child_named(pod["metadata"]["name"])
    assert child is not None
    return pod["metadata"]["ownerReferences"][0]["uid"], child.attempt


def _index(pod: JsonObject) -> str:
    return str(pod["metadata"]["labels"][INDEX_LABEL])


def _size(pod: JsonObject) -> int:
    """As the framework's variables tell the rank."""
    variables = {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}
    return int(variables["PET_NNODES"].split(":")[-1])
