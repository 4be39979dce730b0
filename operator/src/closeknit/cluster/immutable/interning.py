"""Machines of one topology class share what is equal in them: of 7 KB that a machine of 8 GPUs weighs, 5 KB."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from immutables import Map

from closeknit.cluster.immutable.table import EMPTY
from closeknit.machine.graph import Machine, MachineGpu

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Examples:
    """One machine of each topology class, as long as any node has one of that class."""

    machines: Map[str, tuple[Machine, int]] = EMPTY
    """Topology class -> an example of it, and how many nodes have such a machine."""

    def like(self, machine: Machine) -> Machine:
        """An equal machine, made of parts of the example as far as those are equal."""
        example, _ = self.machines.get(machine.topology_class, (machine, 0))
        if example is machine:
            return machine
        return replace(
            machine,
            gpus=_equal(tuple(map(_like, machine.gpus, example.gpus)), machine.gpus),
            links=_equal(example.links, machine.links),
            switch_links=_equal(example.switch_links, machine.switch_links),
            pcie_levels=_equal(example.pcie_levels, machine.pcie_levels),
            nics=_equal(example.nics, machine.nics),
            cpu_model=_equal(example.cpu_model, machine.cpu_model),
            bus_order=_equal(example.bus_order, machine.bus_order),
            topology_class=example.topology_class,
        )

    def after(self, moves: Iterable[tuple[Machine | None, Machine | None]]) -> Self:
        """The examples after nodes have changed from one machine to another, None for none."""
        machines = self.machines.mutate()
        for before, now in moves:
            if now is not None:
                example, count = machines.get(now.topology_class, (now, 0))
                machines[now.topology_class] = (example, count + 1)
            if before is not None:
                example, count = machines[before.topology_class]
                if count > 1:
                    machines[before.topology_class] = (example, count - 1)
                else:
                    del machines[before.topology_class]
        return type(self)(machines.finish())


def _like(gpu: MachineGpu, example: MachineGpu) -> MachineGpu:
    return _equal(replace(example, uuid=gpu.uuid), gpu)


def _equal(example: V, value: V) -> V:
    return example if example == value else value
