"""The CPUs of a node that go with its GPUs."""

from decimal import Decimal

# Of a node's CPUs by its GPUs: what the system has for itself is often taken from one NUMA node alone, and DaemonSets
# have a share, so that all of them never fit beside the GPUs of that NUMA node.
_GIVEN = Decimal("0.75")


def cpu_share_milli(allocatable_milli: int, gpus: int, of: int) -> int | None:
    """Whole CPUs for so many of a node's GPUs; None where there is not one for each."""
    found = int(Decimal(allocatable_milli) / 1000 * gpus / max(of, gpus) * _GIVEN)
    return found if found >= gpus else None
