"""Alibaba's cluster of 2023 and its Pods, as the authors of FGD replay them: Pods come one after the other, stay for
good, and are dropped where they find no room, until so much has been asked for that 130% of all GPUs would be taken.
"""

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

DATA = Path(__file__).parent / "data"
LISTS = ("default", "multigpu20", "multigpu50", "gpuspec33")
DEMAND = 1.3
MILLI = 1000  # parts of a GPU
MOST_GPUS = 8  # of a node

Ints = npt.NDArray[np.int64]


class Kind(NamedTuple):
    """What a Pod asks for."""

    cpu: int
    """In thousandths of a core."""
    memory: int
    """In MiB."""
    gpus: int
    milli: int
    """Of each GPU."""
    models: tuple[str, ...]
    """Of GPU, any of them; empty: every one."""

    @property
    def is_part(self) -> bool:
        """Whether it takes a part of one GPU."""
        return 0 < self.milli < MILLI


class Machine(NamedTuple):
    """What a node has."""

    cpu: int
    memory: int
    gpus: int
    model: str


@cache
def machines() -> tuple[Machine, ...]:
    """The nodes, in the order of their names."""
    with (DATA / "openb_nodes.csv").open() as file:
        return tuple(
            Machine(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpus"]), row["model"])
            for row in csv.DictReader(file)
            for _ in range(int(row["nodes"]))
        )


@cache
def kinds(name: str) -> dict[Kind, int]:
    """What the Pods of a list ask for, and how many ask for it."""
    with (DATA / "openb_pods.csv").open() as file:
        return {
            Kind(
                int(row["cpu_milli"]),
                int(row["memory_mib"]),
                int(row["gpus"]),
                int(row["gpu_milli"]),
                tuple(row["models"].split("|")) if row["models"] else (),
            ): int(row["pods"])
            for row in csv.DictReader(file)
            if row["list"] == name
        }


def all_milli() -> int:
    """All GPUs of the cluster, in thousandths."""
    return sum(machine.gpus for machine in machines()) * MILLI


def arrivals(name: str, seed: int) -> Iterator[Kind]:
    """The Pods of one seed: those of the list in any order, and then any of them again; or fewer, drawn by lot."""
    random = Random(seed)  # noqa: S311 - the same Pods every time
    listed = [kind for kind, count in kinds(name).items() for _ in range(count)]
    coming = listed.copy()
    random.shuffle(coming)
    most, asked = DEMAND * all_milli(), sum(kind.gpus * kind.milli for kind in coming)
    while asked > most:
        dropped = coming.pop(random.randrange(len(coming)))
        asked -= dropped.gpus * dropped.milli
    while asked < most:
        more = random.choice(listed)
        if asked + more.milli > most:
            break
        asked += more.gpus * more.milli
        coming.append(more)
    return iter(coming)


class Left:
    """What each node has left."""

    def __init__(self) -> None:
        every = machines()
        self.models = sorted({machine.model for machine in every})
        self.model: Ints = np.array([self.models.index(machine.model) for machine in every])
        self.cpu: Ints = np.array([machine.cpu for machine in every])
        self.memory: Ints = np.array([machine.memory for machine in every])
        self.gpus: Ints = np.array([[MILLI * (at < machine.gpus) for at in range(MOST_GPUS)] for machine in every])

    def takes(self, kind: Kind) -> npt.NDArray[np.bool_]:
        """The nodes that have room for a Pod."""
        able = (self.cpu >= kind.cpu) & (self.memory >= kind.memory)
        if kind.gpus:
            able &= (self.gpus >= kind.milli).sum(axis=1) >= kind.gpus
        if kind.models:
            able &= np.isin(self.model, [self.models.index(model) for model in kind.models if model in self.models])
        return able

    def give(self, node: int, kind: Kind, gpus: tuple[int, ...]) -> None:
        """A Pod takes these GPUs of a node, or its part of one."""
        self.cpu[node] -= kind.cpu
        self.memory[node] -= kind.memory
        self.gpus[node, list(gpus)] -= kind.milli
