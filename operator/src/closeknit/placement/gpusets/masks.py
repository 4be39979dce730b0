"""The sets of GPUs of a machine that a search looks at, as bit masks over positions."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import combinations as combinations_of
from math import comb

from closeknit.machine.graph import Machine
from closeknit.machine.islands import joined

MANY_SETS = 20_000  # 16 over 8 is 12,870
NEARNESS = {"PIX": 4, "PXB": 3, "PHB": 2, "NODE": 1, "SYS": 0}


def mask_of(positions: Iterable[int]) -> int:
    """Positions as a bit mask."""
    return sum(1 << position for position in positions)


def positions_of(mask: int) -> tuple[int, ...]:
    """The positions of a bit mask, ascending."""
    return tuple(position for position in range(mask.bit_length()) if mask >> position & 1)


def sets_of_count(machine: Machine, runs: tuple[tuple[int, ...], ...], pool: int, count: int) -> tuple[int, ...]:
    """The sets of `count` GPUs out of the pool, ascending by positions; only the lowest of those that differ in twins.

    `runs` are the machine's twins. Beyond MANY_SETS one set is grown from each GPU.
    """
    inside = [here for run in runs if (here := tuple(p for p in run if pool >> p & 1))]
    if comb(pool.bit_count(), count) > MANY_SETS and set_counts(tuple(map(len, inside)))[count] > MANY_SETS:
        masks = {grown_from(machine, pool, start, count) for start in positions_of(pool)}
    else:
        if all(len(run) == 1 for run in inside):
            bits = [1 << position for position in positions_of(pool)]
            return tuple(map(sum, combinations_of(bits, count)))  # ascending by positions already
        masks = set(lowest_of_runs(inside, count))
    return tuple(sorted(masks, key=positions_of))


def twins(machine: Machine) -> tuple[tuple[int, ...], ...]:
    """Runs of interchangeable neighbours in bus order, each ascending; most GPUs are a run of their own."""

    def sees(a: int, b: int) -> list[object]:
        """Everything that placement computes from GPU a, but for what it says of b and of itself."""
        gpu, others = machine.gpus[a], [c for c in range(len(machine.gpus)) if c not in (a, b)]
        return [
            (gpu.compute_capability, gpu.numa_node, gpu.pcie_generation, gpu.pcie_width, gpu.c2c_gb_s),
            machine.switch_links[a],
            [machine.links[a][c] for c in others],
            [machine.pcie_levels[a][c] for c in others] if machine.pcie_levels else [],
            [nic.gpu_levels[a] for nic in machine.nics if nic.gpu_levels],
        ]

    runs: list[list[int]] = []
    for position in machine.bus_order:
        last = runs[-1][-1] if runs else position  # what can be swapped with that can be with all of its run
        if last < position and sees(last, position) == sees(position, last):
            runs[-1].append(position)
        else:
            runs.append([position])
    return tuple(tuple(run) for run in runs)


def lowest_of_runs(runs: list[tuple[int, ...]], count: int) -> Iterator[int]:
    """Masks of `count` GPUs that take the lowest of each run."""
    if count == 0:
        yield 0
    elif runs:
        for some in range(min(len(runs[0]), count) + 1):
            for rest in lowest_of_runs(runs[1:], count - some):
                yield mask_of(runs[0][:some]) | rest


@lru_cache(maxsize=1024)
def set_counts(runs: tuple[int, ...]) -> tuple[int, ...]:
    """How many masks `lowest_of_runs` gives of 0, 1, 2, … GPUs, from how many GPUs each run has."""
    counts = [1]
    for run in runs:
        counts = [sum(counts[max(0, total - run) : total + 1]) for total in range(len(counts) + run)]
    return tuple(counts)


def grown_from(machine: Machine, pool: int, start: int, count: int) -> int:
    """A set grown from one GPU, by the nearest to those in it each time: for machines too large to be exact."""
    levels, chosen = machine.pcie_levels, [start]
    left = [position for position in positions_of(pool) if position != start]
    while len(chosen) < count:
        nearest = max(
            left,
            key=lambda position: (
                sum(joined(machine, position, other) for other in chosen),
                sum(machine.links[position][other] for other in chosen),
                sum(NEARNESS[levels[position][other]] for other in chosen) if levels else 0,
                -position,
            ),
        )
        chosen.append(nearest)
        left.remove(nearest)
    return mask_of(chosen)
