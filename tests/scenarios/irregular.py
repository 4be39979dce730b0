"""Machines that no factory has made: any two GPUs may share links."""

from random import Random

from closeknit.machine.graph import Machine, machine
from scenarios.machines import INTEL_2017, spec, tree


def irregular(seed: int, count: int = 16) -> Machine:
    """Any two of so many GPUs share one to three links, by a chance of one half."""
    random = Random(seed)  # noqa: S311 - the same machines every time
    pairs = [(a, b) for b in range(count) for a in range(b) if random.random() < 0.5]
    sockets = [2 * position // count for position in range(count)]
    return machine(
        spec(
            count=count,
            product="irregular",
            capability="7.0",
            memory_gib=16,
            sockets=sockets,
            levels=tree(sockets, [position // 2 for position in range(count)]),
            pairs=" ".join(f"{a}-{b}:{random.randint(1, 3)}" for a, b in pairs),
            pcie=3,
            cpu=INTEL_2017,
        )
    )
