"""FGD and BestFit as the simulator of FGD's authors has them (hkust-adsl/kubernetes-scheduler-simulator at 8f3d641).

Both filter by CPU, memory, GPU model and GPUs, score every node that is left with a whole number from 0 to 100, and
take the first by name of the best. The simulator gives the nodes new names in a random order before each run
(`rand.Perm` in syncClusterResourceList), so that which of equals that is differs from seed to seed.

FGD (Weng et al., ATC'23) scores by how much the GPU that typical Pods cannot use grows. Typical are the most frequent
kinds of Pods that make 95% of the list, CPU and GPU alone compared. For each of them all that is free of a node counts
where the Pod asks for no GPU, or does not fit; else what is left of those GPUs that have too little for it.
BestFit scores by what would be left, of CPU as a part of 128 cores and of GPU as a part of eight, both alike.
"""

from collections import Counter
from random import Random
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bench.openb import MILLI, MOST_GPUS, Ints, Kind, Left, kinds

TYPICAL = 0.95  # of all Pods
CPU, GPU = 128_000, MOST_GPUS * MILLI  # BestFit's units

Taken = tuple[int, tuple[int, ...]]
"""A node, and which of its GPUs."""


class Rule(Protocol):
    """Who takes a node."""

    left: Left

    def take(self, kind: Kind) -> Taken | None:
        """The node and its GPUs for a Pod that comes; None where there is no room."""


def _named(seed: int, nodes: int) -> Ints:
    """The nodes in the order of the names that they have in the run of a seed."""
    return np.array(Random(seed).sample(range(nodes), nodes))  # noqa: S311 - the same names every time


class BestFit:
    """The node that is the fullest afterwards."""

    def __init__(self, _name: str, seed: int) -> None:
        self.left = Left()
        self._order = _named(seed, len(self.left.cpu))

    def take(self, kind: Kind) -> Taken | None:
        """By the rule."""
        left = self.left
        able = left.takes(kind)
        if not able.any():
            return None
        unused = (left.cpu - kind.cpu) / CPU / 2 + (left.gpus.sum(axis=1) - kind.gpus * kind.milli) / GPU / 2
        scores = np.where(able, np.floor((1 - unused) * 100), -1)
        node = int(self._order[np.argmax(scores[self._order])])
        return node, _tightest(left.gpus[node], kind)


def _tightest(gpus: Ints, kind: Kind) -> tuple[int, ...]:
    able = np.flatnonzero(gpus >= kind.milli) if kind.gpus else np.array([], dtype=int)
    return tuple(map(int, able[np.argsort(gpus[able], kind="stable")][: kind.gpus]))


class Fgd:
    """The node where the least becomes useless."""

    def __init__(self, name: str, seed: int) -> None:
        self.left = left = Left()
        self._order = _named(seed, len(left.cpu))
        self._kinds = list(kinds(name))
        self._numbers = {kind: number for number, kind in enumerate(self._kinds)}
        self._cpu: Ints = np.array([kind.cpu for kind in self._kinds])
        self._memory: Ints = np.array([kind.memory for kind in self._kinds])
        self._count: Ints = np.array([kind.gpus for kind in self._kinds])
        self._milli: Ints = np.array([kind.milli for kind in self._kinds])
        self._is_part = np.array([kind.is_part for kind in self._kinds])
        self._is_of = _is_of(self._kinds, left.models)
        typical = _typical(name)
        self._typical = [kind for kind in typical if kind.gpus]  # of the others all is useless, always
        self._weights = np.array([typical[kind] for kind in self._typical]) / sum(typical.values())
        self._typical_cpu: Ints = np.array([kind.cpu for kind in self._typical])
        self._typical_milli: Ints = np.array([kind.milli for kind in self._typical])
        self._typical_count: Ints = np.array([kind.gpus for kind in self._typical])
        self._typical_is_of = _is_of(self._typical, left.models)
        shape = (len(self._kinds), len(left.cpu))
        self._scores: Ints = np.full(shape, -1)
        self._choices: Ints = np.zeros(shape, dtype=int)
        self._changed: int | None = None
        like: dict[tuple[int, ...], int] = {}
        for node in range(len(left.cpu)):
            first = like.setdefault((left.cpu[node], left.memory[node], left.model[node], *left.gpus[node]), node)
            if first == node:
                self._score(node)
            self._scores[:, node], self._choices[:, node] = self._scores[:, first], self._choices[:, first]

    def take(self, kind: Kind) -> Taken | None:
        """By the rule."""
        if self._changed is not None:
            self._score(self._changed)
            self._changed = None
        number = self._numbers[kind]
        node = int(self._order[np.argmax(self._scores[number, self._order])])
        if self._scores[number, node] < 0:
            return None
        self._changed = node
        if kind.is_part:
            return node, (int(self._choices[number, node]),)
        whole = np.flatnonzero(self.left.gpus[node] == MILLI)
        return node, tuple(map(int, whole[: kind.gpus]))

    def useless(self, cpu: Ints, gpus: Ints, model: int) -> npt.NDArray[np.float64]:
        """What of each state is of no use, the mean over the typical Pods."""
        enough = gpus[:, None, :] >= self._typical_milli[None, :, None]
        fits = (enough.sum(axis=2) >= self._typical_count) & (cpu[:, None] >= self._typical_cpu)
        useful = (enough * gpus[:, None, :]).sum(axis=2) * (fits & self._typical_is_of[:, model])
        found: npt.NDArray[np.float64] = gpus.sum(axis=1) - useful @ self._weights
        return found

    def _score(self, node: int) -> None:
        """Of one node for every kind of Pod."""
        left = self.left
        cpu, gpus, model = left.cpu[node], left.gpus[node], left.model[node]
        able = (self._cpu <= cpu) & (self._memory <= left.memory[node])
        able &= (self._count == 0) | self._is_of[:, model]
        able &= (gpus >= self._milli[:, None]).sum(axis=1) >= self._count
        is_first = np.array([value not in gpus[:at] for at, value in enumerate(gpus)])
        parts, at = np.nonzero((able & self._is_part)[:, None] & (gpus >= self._milli[:, None]) & is_first)
        wholes = np.flatnonzero(able & ~self._is_part)
        of_part = np.repeat(gpus[None, :], len(parts), axis=0)
        of_part[np.arange(len(parts)), at] -= self._milli[parts]
        is_whole = gpus == MILLI
        taken = is_whole & (np.cumsum(is_whole) <= self._count[wholes, None])
        rows = np.concatenate([parts, wholes])
        after = np.concatenate([of_part, np.where(taken, 0, gpus)])
        states = np.concatenate([[cpu], cpu - self._cpu[rows]]), np.concatenate([gpus[None, :], after])
        useless = self.useless(*states, model)
        gained = np.round(useless[0] - useless[1:], 6)  # of sums of floats
        scores = np.floor(100 / (1 + np.exp(-gained / MILLI))).astype(int)
        best = np.full(len(self._kinds), -1)
        np.maximum.at(best, rows, scores)
        is_best = scores[: len(parts)] == best[parts]
        self._choices[parts[is_best][::-1], node] = at[is_best][::-1]  # of equals the first
        self._scores[:, node] = best


def _is_of(some: list[Kind], models: list[str]) -> npt.NDArray[np.bool_]:
    return np.array([[not kind.models or model in kind.models for model in models] for kind in some])


def _typical(name: str) -> dict[Kind, int]:
    """What the typical Pods ask for, without memory, and how many ask for it."""
    counts = Counter[Kind]()
    for kind, count in kinds(name).items():
        counts[kind._replace(memory=0)] += count
    found: dict[Kind, int] = {}
    for kind in sorted(counts, key=lambda kind: (counts[kind], kind), reverse=True):
        if sum(found.values()) >= TYPICAL * counts.total():
            break
        found[kind] = counts[kind]
    return found
