"""What NVML says of one machine and its NVLinks that cannot all be true. Pure.

A driver that is wrong in one of these facts may be wrong in more: they stay as they were read, and the confidence is
low.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from closeknit.agent.discovery.machine import nvlink
from closeknit.agent.discovery.machine.nvlink import Ends, LinkEnd
from closeknit.agent.discovery.readings import pci
from closeknit.agent.discovery.readings.readings import CHANGES, GpuReading, PciReading
from closeknit.machine.products import product_of

# Generations that GPUs of a major compute capability have: 1 to 5 came with 6 to 10, one each, and 6 with 10.7 (Rubin).
GENERATIONS_OF: Mapping[int, tuple[int, ...]] = {6: (1,), 7: (2,), 8: (3,), 9: (4,), 10: (5, 6)}
MOST_CLAUSES = 8  # of a message; a driver that is wrong in all is no better told by all


def contradiction(gpus: Sequence[GpuReading], devices: Iterable[PciReading] = ()) -> str | None:
    """What contradicts the rest, as clauses that name the GPUs; None where nothing does.

    By facts that stay as they are while links go down and come up, so that a machine does not change with them.
    """
    found: dict[str, list[int]] = {}
    for index, words in (*_of_products(gpus), *_of_ends(gpus, list(devices)), *_of_fabrics(gpus)):
        found.setdefault(words, []).append(index)
    said = [
        f"GPU {', '.join(map(str, indexes))} {'tell' if len(indexes) > 1 else 'tells'} of {words}"
        for words, indexes in islice(found.items(), MOST_CLAUSES)
    ]
    return "; ".join(said) or None


def cliques(gpus: Iterable[GpuReading]) -> list[list[int]]:
    """Indexes of the GPUs in each clique of each NVLink domain: between two of these no NVLink works.

    The all-zero uuid is that of no domain, and has no cliques.
    """
    found: dict[tuple[str, int], list[int]] = {}
    for gpu in gpus:
        if gpu.fabric is not None and nvlink.is_completed(gpu.fabric):
            uuid = gpu.fabric.cluster_uuid
            found.setdefault((uuid, gpu.fabric.clique_id if uuid.strip("0") else 0), []).append(gpu.index)
    return list(found.values())


def _of_products(gpus: Iterable[GpuReading]) -> Iterator[tuple[int, str]]:
    """Uuid, name, compute capability, and number and generation of NVLinks."""
    for gpu in gpus:
        if gpu.errors.get("uuid") == CHANGES:
            yield gpu.index, "a uuid that changes"
        own, capability, known = nvlink.generation(gpu), gpu.compute_capability, product_of(gpu.name)
        may_have = GENERATIONS_OF.get(capability[0]) if capability is not None else None
        if own is not None and capability is not None and may_have is not None and own not in may_have:
            yield gpu.index, f"NVLink {own}, which no GPU of compute capability {capability[0]}.{capability[1]} has"
        if (
            known is not None
            and capability is not None
            and known.compute_capability.split(".")[0] != str(capability[0])
        ):
            yield gpu.index, f"compute capability {capability[0]}.{capability[1]}, which no {known.words} has"
        count = len(nvlink.built(gpu))
        if known is not None and count > known.links:
            yield gpu.index, f"{count} NVLinks, more than any {known.words} has"


def _of_ends(gpus: Sequence[GpuReading], devices: Sequence[PciReading]) -> Iterator[tuple[int, str]]:
    """Where NVLinks lead."""
    ends = Ends(gpus, devices)
    own = {pci.address(gpu.bus_id) for gpu in gpus} - {None}
    strangers = {device.address for device in devices if device.vendor not in (None, pci.NVIDIA_VENDOR)}
    led = [[ends.of(link) for link in nvlink.built(gpu)] for gpu in gpus]
    for at, gpu in enumerate(gpus):
        remotes = {(pci.address(link.remote_bus_id), link.remote_type) for link in nvlink.built(gpu)}
        if any(remote in strangers and kind != nvlink.REMOTE_CPU for remote, kind in remotes):
            yield gpu.index, "an NVLink to a PCI device that is no GPU and no switch"
        if any(remote in own and kind == nvlink.REMOTE_SWITCH for remote, kind in remotes):
            yield gpu.index, "a switch at the address of a GPU"
        if at in led[at]:
            yield gpu.index, "an NVLink that ends where it begins"
        others = {each for each in led[at] if isinstance(each, int) and each != at}
        if any(led[other].count(at) < led[at].count(other) and _tells_all_ends(gpus[other], ends) for other in others):
            yield gpu.index, "NVLinks to a GPU that says otherwise"
        if others and LinkEnd.SWITCH in led[at]:
            yield gpu.index, "NVLinks both into switches and to other GPUs"


def _tells_all_ends(gpu: GpuReading, ends: Ends) -> bool:
    """Whether no link of the GPU is left that may lead anywhere."""
    told = [link for link in nvlink.built(gpu) if ends.of(link) is not LinkEnd.UNKNOWN]
    return "handle" not in gpu.errors and len(told) == sum(link.p2p is not False for link in gpu.links)


def _of_fabrics(gpus: Iterable[GpuReading]) -> Iterator[tuple[int, str]]:
    """The NVLink fabric that they are in; MIG turns links off."""
    for gpu in gpus:
        is_joined = gpu.fabric is not None and nvlink.is_completed(gpu.fabric) and gpu.fabric.cluster_uuid.strip("0")
        if is_joined and not gpu.links and not nvlink.has_mig(gpu) and "handle" not in gpu.errors:
            yield gpu.index, "an NVLink domain, and of no NVLink"
