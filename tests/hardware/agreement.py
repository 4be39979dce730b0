"""What the agent publishes of a machine, held against what others say of it, cell by cell.

Each cell is one fact of one device that both name. What the other side does not say (`N/A`, a tag that is not there) is
no cell; what it says and the agent does not know is one, and differs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from xml.etree.ElementTree import Element, fromstring

from closeknit.agent.discovery.readings import dump
from closeknit.agent.discovery.topology import discover
from closeknit.api.nodetopology import Gpu, Method, MigMode, NodeTopologySpec
from closeknit.machine.product import product as product_label
from hardware.recording import Recording

SWITCH_CLASS = "0x068000"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Cell:
    """One fact that two sources tell."""

    source: str
    subject: str
    fact: str
    ours: object
    theirs: object

    @property
    def agrees(self) -> bool:
        """Whether both say the same."""
        return self.ours == self.theirs


def cells(recording: Recording) -> list[Cell]:
    """Every cell of this recording."""
    spec = discover(dump.decode(recording.dump), Method.NVML).spec
    found: list[Cell] = []
    if recording.topo_m is not None:
        found += _of_topo(spec, recording.topo_m)
    if recording.nvlink_s is not None:
        found += _of_nvlink(spec, recording.nvlink_s)
    if recording.query_xml is not None:
        found += _of_query(spec, _xml(recording.query_xml))
    if recording.nccl_xml is not None:
        found += _of_nccl(spec, _xml(recording.nccl_xml))
    return found


def _of_topo(spec: NodeTopologySpec, text: str) -> Iterator[Cell]:
    """`nvidia-smi topo -m`: the matrix, and the NUMA column of machines with one node number per GPU."""
    source = "nvidia-smi topo -m"
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    header = next(line for line in plain.splitlines() if line.lstrip().startswith("GPU0"))
    columns = header.split("\t")
    rows = {cells[0]: dict(zip(columns[1:], cells[1:], strict=False)) for cells in _rows(plain)}
    links = _links(spec)
    for a, b in combinations(range(len(spec.gpus)), 2):
        theirs = rows[f"GPU{a}"][f"GPU{b}"].strip()
        level = spec.pcie.levels[a].split()[b] if spec.pcie.levels else None
        ours = f"NV{links[a, b]}" if links[a, b] else level
        yield Cell(source, f"GPU {a}-{b}", "cell", ours, theirs)
    for index, nic in product(range(len(spec.gpus)), spec.nics or ()):
        if nic.name in rows[f"GPU{index}"]:
            theirs = rows[f"GPU{index}"][nic.name].strip()
            yield Cell(source, f"GPU {index} to {nic.name}", "cell", nic.gpu_levels[index], theirs)


def _rows(text: str) -> Iterator[list[str]]:
    return (line.split("\t") for line in text.splitlines() if re.match(r"GPU\d+\t", line))


def _of_nvlink(spec: NodeTopologySpec, text: str) -> Iterator[Cell]:
    """`nvidia-smi nvlink -s`: each link's speed."""
    source = "nvidia-smi nvlink -s"
    parts = re.split(r"^GPU (\d+): .*?UUID: (\S+)\)\s*$", text, flags=re.MULTILINE)
    links = _links(spec)
    for index, uuid, printed in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        gpu = spec.gpus[int(index)]
        yield Cell(source, f"GPU {index}", "uuid", gpu.uuid, uuid)
        speeds = [float(speed) for speed in re.findall(r"Link \d+: ([0-9.]+) GB/s", printed)]
        ours = spec.nvlink.links_per_gpu or [
            sum(links[a, b] for b in range(len(spec.gpus))) for a in range(len(spec.gpus))
        ]
        yield Cell(source, f"GPU {index}", "links", ours[int(index)], len(speeds))
        speed = gpu.link_bandwidth_gb_s or spec.nvlink.link_bandwidth_gb_s
        yield from (Cell(source, f"GPU {index} link {n}", "GB/s", speed, theirs) for n, theirs in enumerate(speeds))


def _of_query(spec: NodeTopologySpec, root: Element) -> Iterator[Cell]:
    """`nvidia-smi -q -x`."""
    source = "nvidia-smi -q"
    yield Cell(source, "machine", "driver", spec.source.driver_version, _text(root, "driver_version"))
    yield Cell(source, "machine", "CUDA", spec.source.cuda_version, _text(root, "cuda_version"))
    found = root.findall("gpu")
    yield Cell(source, "machine", "GPUs", len(spec.gpus), len(found))
    for gpu, told in zip(spec.gpus, found, strict=False):
        for fact, ours, theirs in _facts(gpu, told):
            if theirs not in (None, "N/A"):
                yield Cell(source, f"GPU {gpu.index}", fact, ours, theirs)


def _facts(gpu: Gpu, told: Element) -> Iterator[tuple[str, object, object]]:
    memory = _text(told, "fb_memory_usage/total")
    name = _text(told, "product_name")
    yield "PCI address", gpu.pci_address, told.attrib["id"].lower()[4:]
    yield "uuid", gpu.uuid, _text(told, "uuid")
    yield "product", gpu.product, product_label(name) if name else None
    yield "architecture", gpu.architecture, _text(told, "product_architecture")
    yield "minor number", _words(gpu.minor), _text(told, "minor_number")
    yield (
        "memory, MiB",
        gpu.memory_bytes // MIB if gpu.memory_bytes else None,
        int(memory.split()[0]) if memory else None,
    )
    yield "MIG", gpu.mig.mode.value if gpu.mig else None, _text(told, "mig_mode/current_mig")
    generation = _text(told, "pci/pci_gpu_link_info/pcie_gen/max_link_gen")
    yield "PCIe generation", _words(gpu.pcie_generation), generation
    width = _text(told, "pci/pci_gpu_link_info/link_widths/max_link_width")
    yield "PCIe width", f"{gpu.pcie_width}x" if gpu.pcie_width else None, width
    if gpu.mig is not None and gpu.mig.mode is MigMode.ENABLED:
        yield "MIG devices", len(gpu.mig.devices), len(told.findall("mig_devices/mig_device"))


def _of_nccl(spec: NodeTopologySpec, root: Element) -> Iterator[Cell]:
    """NCCL's graph: NVLinks and compute capability of each GPU, and how near each two are on PCI."""
    source = "NCCL"
    links = _links(spec)
    paths = dict(_paths(root, ()))
    by_address = {gpu.pci_address: gpu for gpu in spec.gpus}
    yield Cell(source, "machine", "GPUs", sorted(by_address), sorted(paths))
    for address, (_, gpu) in paths.items():
        ours = by_address[address]
        subject = f"GPU {ours.index}"
        sm = gpu.attrib["sm"]
        yield Cell(source, subject, "compute capability", ours.compute_capability, f"{sm[:-1]}.{sm[-1]}")
        for found in gpu.findall("nvlink"):
            count = int(found.attrib["count"])
            if found.attrib["tclass"] == SWITCH_CLASS:
                yield Cell(source, subject, "links into switches", spec.nvlink.links_per_gpu[ours.index], count)
            elif found.attrib["target"] in by_address:
                other = by_address[found.attrib["target"]].index
                yield Cell(source, f"GPU {ours.index}-{other}", "links", links[ours.index, other], count)
    for (a, (path_a, _)), (b, (path_b, _)) in combinations(paths.items(), 2):
        first, second = by_address[a].index, by_address[b].index
        if spec.pcie.levels:
            ours_near = spec.pcie.levels[first].split()[second] in ("PIX", "PXB")
            yield Cell(
                source, f"GPU {first}-{second}", "under one PCI switch", ours_near, path_a[1:2] == path_b[1:2] != ()
            )


def _paths(element: Element, above: tuple[str, ...]) -> Iterator[tuple[str, tuple[tuple[str, ...], Element]]]:
    """Each GPU's address, with the CPU and the PCI bridges above it, outermost first."""
    for child in element:
        if child.tag == "cpu":
            yield from _paths(child, (f"cpu {child.attrib.get('numaid')}",))
        elif child.tag == "pci":
            gpu = child.find("gpu")
            if gpu is not None:
                yield child.attrib["busid"], (above, gpu)
            yield from _paths(child, (*above, child.attrib["busid"]))


def _links(spec: NodeTopologySpec) -> dict[tuple[int, int], int]:
    """NVLinks between each two GPUs, by position, both ways."""
    count = len(spec.gpus)
    if spec.nvlink.switched:
        per_gpu = spec.nvlink.links_per_gpu
        return {(a, b): 0 if a == b else min(per_gpu[a], per_gpu[b]) for a, b in product(range(count), repeat=2)}
    direct = {(pair.a, pair.b): pair.links for pair in spec.nvlink.pairs}
    indexes = [gpu.index for gpu in spec.gpus]
    return {
        (a, b): direct.get((min(indexes[a], indexes[b]), max(indexes[a], indexes[b])), 0)
        for a, b in product(range(count), repeat=2)
    }


def _text(element: Element, path: str) -> str | None:
    found = element.findtext(path)
    return found.strip() if found else None


def _words(number: int | None) -> str | None:
    return None if number is None else str(number)


def _xml(text: str) -> Element:
    """nvidia-smi's and NCCL's own files: no stranger wrote them."""
    return fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", text))  # noqa: S314
