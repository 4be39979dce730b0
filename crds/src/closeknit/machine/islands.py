"""NVLink islands: sets of GPUs that reach each other over NVLink alone."""

from collections.abc import Iterable

from closeknit.machine.graph import Machine


def islands(machine: Machine, positions: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """The connected components over NVLink of these positions, each ascending, in order of their first.

    Only GPUs among `positions` carry traffic: NCCL never routes through a GPU that the job does not have. Behind
    switches all are one island, but each GPU without an active link is alone.
    """
    left = sorted(set(positions))
    found: list[tuple[int, ...]] = []
    while left:
        island = [left.pop(0)]
        for reached in island:  # grows while it is walked
            near = [other for other in left if joined(machine, reached, other)]
            island += near
            left = [other for other in left if other not in near]
        found.append(tuple(sorted(island)))
    return tuple(found)


def joined(machine: Machine, a: int, b: int) -> bool:
    """Whether two GPUs have NVLinks to each other, directly or through switches."""
    if machine.switched:
        return machine.switch_links[a] > 0 and machine.switch_links[b] > 0
    return machine.links[a][b] > 0


def are_joined_alike(machine: Machine) -> bool:
    """Whether NVLink joins any GPUs of the machine like any others as many: all by as many links to each other, or all
    to switches."""
    count = len(machine.gpus)
    if machine.switched:
        return min(machine.switch_links, default=0) > 0 and len(set(machine.switch_links)) == 1
    pairs = {machine.links[a][b] for a in range(count) for b in range(a)}
    return len(pairs) == 1 and 0 not in pairs
