"""PCIe levels between GPUs, and from any device to each of them, and how far they can be trusted. Pure.

sysfs comes first: one tree gives every word, those between GPUs and those to NICs, which NVML does not know, so that
they cannot contradict each other; a GPU that NVML lost keeps its words; and no failed call out of 28 changes one. NVML
tells what sysfs does not: the words of a GPU that has no place in the tree, and of two host bridges if one does
not say its NUMA node, for which the tree has only the SYS that nvidia-smi would print there. Where both know and
differ, one of them is wrong about this machine: the words stay, and the confidence is low.
"""

from collections.abc import Sequence
from itertools import combinations

from closeknit.agent.discovery.readings import pci
from closeknit.agent.discovery.readings.readings import GpuReading, PciReading, Readings
from closeknit.api.nodetopology import Confidence


def between_gpus(readings: Readings, gpus: Sequence[GpuReading], places: Sequence[PciReading | None]) -> list[str]:
    """The rows of the matrix in the order of `gpus`; no rows at all unless every pair is known."""
    ancestors = _ancestors(readings)
    rows = [["X"] * len(gpus) for _ in gpus]
    for (i, a), (j, b) in combinations(enumerate(gpus), 2):
        told = ancestors.get((a.index, b.index))
        place_a, place_b = places[i], places[j]
        in_tree = pci.level(place_a, place_b) if place_a is not None and place_b is not None else None
        found = _from_tree(place_a, place_b) or told or in_tree
        if found is None:
            return []
        rows[i][j] = rows[j][i] = found
    return [" ".join(row) for row in rows]


def to_gpus(device: PciReading | None, gpus: Sequence[PciReading | None]) -> list[str]:
    """The level of a device to each GPU in the order of `gpus`; none at all where one is unknown."""
    if device is None:
        return []
    found = [pci.level(device, gpu) if gpu is not None else None for gpu in gpus]
    known = [level for level in found if level is not None]
    return known if len(known) == len(found) else []


def confidence(
    readings: Readings, virtualized: bool | None, gpus: Sequence[GpuReading], places: Sequence[PciReading | None]
) -> Confidence | None:
    """How far the levels can be trusted; None where there are none to trust.

    Low where a hypervisor puts devices straight on a root bus, and so hides the switches and sockets that are there (a
    tree that it shows is at least consistent), and where NVML contradicts sysfs.
    """
    if not any(places):
        return None
    addresses = {device.address for device in readings.rdma if device.address is not None}
    nics = [device for device in readings.pci if device.address in addresses]
    is_flat = any(place is not None and pci.is_flat(place) for place in (*places, *nics))
    ancestors = _ancestors(readings)
    contradicted = any(
        told is not None and known is not None and told != known
        for (i, a), (j, b) in combinations(enumerate(gpus), 2)
        for told, known in [(ancestors.get((a.index, b.index)), _from_tree(places[i], places[j]))]
    )
    return Confidence.LOW if contradicted or (is_flat and virtualized is not False) else Confidence.HIGH


def _ancestors(readings: Readings) -> dict[tuple[int, int], str]:
    """What NVML says of pairs of GPUs, in the words of nvidia-smi."""
    words = {(pair.a, pair.b): pci.NVML_LEVELS.get(pair.common_ancestor or 0) for pair in readings.pairs}
    asked = {(pair.a, pair.b) for pair in readings.pairs if pair.common_ancestor is not None}
    return {pair: word for pair, word in words.items() if word is not None and pair in asked}


def _from_tree(a: PciReading | None, b: PciReading | None) -> str | None:
    """The level that the tree knows, and does not only fall back to."""
    if a is None or b is None:
        return None
    found = pci.level(a, b)
    return None if found == "SYS" and None in (pci.numa_node(a), pci.numa_node(b)) else found
