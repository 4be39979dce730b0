"""Room for a Pod on nodes, by kube-scheduler's rule: enough is left of each resource that it needs."""

from collections.abc import Mapping

from closeknit.api.names import POD_COUNT
from closeknit.cluster.objects.pod_requests import CPU, Amounts, Needs

_BYTES = ("memory", "ephemeral-storage", "hugepages-")
_UNITS = ("", "Ki", "Mi", "Gi")


def fits(has: Amounts | None, needs: Needs) -> bool:
    """Whether a node that has this much left takes a Pod of these needs; if unknown, it does."""
    if has is None:
        return True
    for resource, amount in needs:  # noqa: SIM110 - a generator costs twice as much, and every node is asked
        if has.get(resource, 0) < amount:
            return False
    return True


def lacking(has: Amounts | None, needs: Needs) -> Needs:
    """The needs that a node cannot meet, by name, each with the node's amount."""
    if has is None:
        return ()
    return tuple((resource, has.get(resource, 0)) for resource, amount in needs if has.get(resource, 0) < amount)


def with_room(names: tuple[str, ...], spare: Mapping[str, Amounts], needs: Needs) -> tuple[str, ...]:
    """The nodes with room, in their order."""
    if not needs:
        return names
    kept = [name for name in names if fits(spare.get(name), needs)]
    return names if len(kept) == len(names) else tuple(kept)


def told(resource: str, amount: int) -> str:
    """An amount in a template's form: `1500m`, `24`, `256Gi`, `100.2Gi`; rounded down."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if not resource.startswith(_BYTES):
        return str(amount)
    tenths, unit = _in_tenths(amount)
    return f"{tenths / 10:g}{_UNITS[unit]}"  # rounded down: a node has no more than is said


def rounded(resource: str, amount: int) -> int:
    """The amount that a request of this printed amount asks for."""
    if not resource.startswith(_BYTES):
        return amount
    tenths, unit = _in_tenths(amount)
    return _of_tenths(tenths, unit)


def rounded_up(resource: str, amount: int) -> int:
    """The least amount with an exact printed form that is not less than this."""
    if rounded(resource, amount) == amount:
        return amount
    tenths, unit = _in_tenths(amount)
    return _of_tenths(tenths + 1, unit)


def _of_tenths(tenths: int, unit: int) -> int:
    return -(-(tenths << 10 * unit) // 10)


def _in_tenths(size_bytes: int) -> tuple[int, int]:
    """Tenths, rounded down, of the largest unit that it has one of, and the power of that unit."""
    unit = max((power for power in range(len(_UNITS)) if size_bytes >= 1 << 10 * power), default=0)
    return size_bytes * 10 >> 10 * unit, unit


def shortage(resource: str) -> str:
    """The node's surplus or shortage, in words."""
    return "too many Pods" if resource == POD_COUNT else f"too little {resource}"
