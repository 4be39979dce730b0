"""What is shown of one machine, in words: the same for the table and the picture. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from closeknit.api.nodetopology import Confidence, Method, MigMode, Nic, NodeTopologySpec
from closeknit.api.nodetopology_status import GpuStatus, Health, NicStatus, NodeTopologyStatus
from closeknit.api.objects import NodeTopology
from closeknit.machine.checks import ITSELF, LEVELS
from closeknit.machine.graph import Machine
from closeknit.machine.health import unusable_gpus, working_machine
from closeknit.machine.islands import islands
from closeknit.machine.products import product_of

UNKNOWN = "-"
_SWITCHED_LEVELS = LEVELS[:2]  # through PCIe switches alone
_BESIDE = LEVELS[:3]  # on one host bridge
_MOST_BESIDE = 4  # GPUs below one PCIe switch, as a rule; a NIC that is as near to more of them is beside none


@dataclass(frozen=True, slots=True)
class GpuLine:
    """One GPU."""

    index: int
    numa: str
    state: str
    """What is wrong with it, or with its links; empty where nothing is."""
    brief: str
    """The first of that, in two or three words."""
    is_out: bool
    """Whether no job can use it."""


@dataclass(frozen=True, slots=True)
class NicLine:
    """One port of an RDMA NIC."""

    name: str
    levels: tuple[str, ...]
    """PCIe level to each GPU."""
    nearest: str
    """The nearest of these."""
    beside: tuple[int, ...]
    """Positions of the GPUs below whose switches or host bridge it is; empty where that is none of them, or many."""
    numa: str
    facts: str
    is_down: bool


@dataclass(frozen=True, slots=True)
class MachineSheet:
    """One machine. GPUs stand by their NVML index, and every matrix is in that order."""

    name: str
    summary: str
    gpus: tuple[GpuLine, ...]
    links: tuple[tuple[int, ...], ...]
    """NVLinks that are up between two GPUs, directly or through switches."""
    words: tuple[tuple[str, ...], ...]
    """As `nvidia-smi topo -m` has them: X, NV and a number, a PCIe level; or - where it is unknown."""
    is_switched: bool
    nics: tuple[NicLine, ...]
    islands: tuple[tuple[int, ...], ...]
    """NVML indexes that reach each other over NVLink, without the GPUs that are out of use."""
    pcie_groups: tuple[tuple[str, tuple[int, ...]], ...]
    """Level, and positions of GPUs that are that near or nearer to each other, through PCIe switches; nearest first."""
    notes: tuple[str, ...]
    """What a reader should know before he believes it."""

    @property
    def island_words(self) -> str:
        """The islands as a line of text."""
        return f"NVLink islands: {' '.join(','.join(map(str, island)) for island in self.islands) or 'none'}"


def sheet(topology: NodeTopology) -> MachineSheet:
    """The sheet of a NodeTopology. Raises InvalidTopology."""
    spec, status = topology.spec, topology.status
    graph = working_machine(spec, status)
    order = sorted(range(len(spec.gpus)), key=lambda row: spec.gpus[row].index)
    links = _links(graph)
    out = unusable_gpus(status)
    usable = [position for position, gpu in enumerate(graph.gpus) if gpu.index not in out]
    return MachineSheet(
        name=topology.metadata.name,
        summary=_summary(spec),
        gpus=tuple(_gpu_line(spec, row, status) for row in order),
        links=links,
        words=tuple(tuple(_word(graph, links, a, b) for b in range(len(graph.gpus))) for a in range(len(graph.gpus))),
        is_switched=spec.nvlink.switched,
        nics=tuple(_nic_line(nic, order, status) for nic in spec.nics or ()),
        islands=tuple(tuple(graph.gpus[position].index for position in island) for island in islands(graph, usable)),
        pcie_groups=tuple(_pcie_groups(graph)),
        notes=tuple(_notes(spec, status)),
    )


def _links(graph: Machine) -> tuple[tuple[int, ...], ...]:
    if not graph.switched:
        return graph.links
    into = graph.switch_links
    return tuple(tuple(0 if a == b else min(into[a], into[b]) for b in range(len(into))) for a in range(len(into)))


def _word(graph: Machine, links: Sequence[Sequence[int]], a: int, b: int) -> str:
    if a == b:
        return "X"
    if links[a][b]:
        return f"NV{links[a][b]}"
    return graph.pcie_levels[a][b] if graph.pcie_levels else UNKNOWN


def _pcie_groups(graph: Machine) -> Iterator[tuple[str, tuple[int, ...]]]:
    listed: set[tuple[int, ...]] = set()
    for rank, level in enumerate(_SWITCHED_LEVELS, start=1):
        near = (ITSELF, *LEVELS[:rank])
        for row in graph.pcie_levels:
            group = tuple(position for position, word in enumerate(row) if word in near)
            if len(group) > 1 and group not in listed:
                listed.add(group)
                yield level, group


def _gpu_line(spec: NodeTopologySpec, row: int, status: NodeTopologyStatus) -> GpuLine:
    gpu = spec.gpus[row]
    states = [(str(found.state), _state(found)) for found in status.gpus if found.index == gpu.index]
    down = sorted({found.link for found in status.links_down if found.gpu == gpu.index})
    if down:
        links = "link" if len(down) == 1 else "links"
        states.append((f"{len(down)} {links} down", f"{links} {', '.join(map(str, down))} down"))
    if gpu.mig is not None and gpu.mig.mode is MigMode.ENABLED:
        profiles = Counter(device.profile for device in gpu.mig.devices)
        kinds = " and ".join(f"{number} of {profile}" for profile, number in sorted(profiles.items()))
        states.append(("MIG", f"MIG: {kinds}" if kinds else "MIG, no devices"))
    return GpuLine(
        index=gpu.index,
        numa=_numa(gpu.numa_node),
        state="; ".join(state for _, state in states),
        brief=states[0][0] if states else "",
        is_out=gpu.index in unusable_gpus(status),
    )


def _nic_line(nic: Nic, order: Sequence[int], status: NodeTopologyStatus) -> NicLine:
    states = [_state(found) for found in status.nics if found.name == nic.name]
    rate = f"{nic.rate_gb_per_s:g} Gb/s" if nic.rate_gb_per_s is not None else None
    way = "Data Direct" if nic.data_direct_address is not None else None
    known = [str(fact) for fact in (nic.transport, rate, way, nic.state if not states else None) if fact is not None]
    levels = tuple(nic.gpu_levels[row] for row in order) if nic.gpu_levels else ()
    nearest = min(levels, key=LEVELS.index, default=UNKNOWN)
    beside = tuple(at for at, level in enumerate(levels) if level == nearest and level in _BESIDE)
    return NicLine(
        name=nic.name if nic.port == 1 else f"{nic.name}:{nic.port}",
        levels=levels or (UNKNOWN,) * len(order),
        nearest=nearest,
        beside=beside if len(beside) <= _MOST_BESIDE else (),
        numa=_numa(nic.numa_node),
        facts=", ".join((*known, *states)),
        is_down=any(found.name == nic.name and found.state is not Health.DEGRADED for found in status.nics)
        or nic.state == "Down",
    )


def _state(found: GpuStatus | NicStatus) -> str:
    return f"{found.state}: {', '.join(found.reasons)}" if found.reasons else str(found.state)


def _summary(spec: NodeTopologySpec) -> str:
    products = Counter(gpu.product for gpu in spec.gpus)
    names = [
        f"{number} {product}" if product else f"{_count(number, 'GPU')} of unknown product"
        for product, number in products.items()
    ]
    gpus = ", ".join(names) or "no GPU"
    return f"{gpus}; {_nvlink(spec)}"


def _nvlink(spec: NodeTopologySpec) -> str:
    nvlink = spec.nvlink
    if not nvlink.pairs and not any(nvlink.links_per_gpu):
        return "no NVLink between them" if len(spec.gpus) > 1 else "no NVLink"
    name = f"NVLink {nvlink.generation}" if nvlink.generation else "NVLink"
    speed = f" of {nvlink.link_bandwidth_gb_s:g} GB/s" if nvlink.link_bandwidth_gb_s else ""
    if not nvlink.switched:
        return f"{name}, direct links{speed}"
    counts = [count for count in nvlink.links_per_gpu if count]
    most, fewest = max(counts), min(counts)
    count = str(most) if most == fewest else f"{fewest} to {most}"
    return f"{name} through switches, {count} {'link' if most == 1 else 'links'}{speed} for each"


_METHODS = {
    Method.NVML: "read through NVML",
    Method.NVIDIA_SMI: "read from a text of nvidia-smi",
    Method.RECORDED: "read from a dump",
    Method.SIMULATED: "simulated",
}


def _notes(spec: NodeTopologySpec, status: NodeTopologyStatus) -> Sequence[str]:
    source = spec.source
    versions = [("driver", source.driver_version), ("CUDA", source.cuda_version)]
    notes = [", ".join((_METHODS[source.method], *(f"{name} {version}" for name, version in versions if version)))]
    if source.topology_confidence is Confidence.LOW and source.method is not Method.NVIDIA_SMI:
        notes.append("low confidence in NVLink: what was read of it contradicts itself")
    elif source.topology_confidence is Confidence.LOW and spec.nvlink.pairs:
        notes.append("low confidence in NVLink: from what was read, switches and direct links look the same")
    elif source.topology_confidence is Confidence.LOW:
        notes.append("low confidence in NVLink: from what was read, there may be some")
    if source.pcie_confidence is Confidence.LOW:
        notes.append("low confidence in PCIe levels: some may be nearer, or contradict others")
    if source.method is Method.NVIDIA_SMI:
        notes += _lacking(spec)
    if spec.nics is None:
        notes.append("its RDMA NICs are not known")
    notes += _unplaced(spec)
    if spec.nvlink.domain is not None:
        notes.append(f"of NVLink domain {spec.nvlink.domain.cluster_uuid}, clique {spec.nvlink.domain.clique_id}")
    notes += [
        f"{condition.type} is {condition.status}: {condition.message or condition.reason}"
        for condition in status.conditions
        if condition.status != "True"
    ]
    notes += [] if status.lemon is None else [f"lemon since {status.lemon.since}: {status.lemon.message}"]
    return notes


def _unplaced(spec: NodeTopologySpec) -> Iterator[str]:
    """NICs without a level to any GPU, and why a text says none."""
    names = list(dict.fromkeys(nic.name for nic in spec.nics or () if not nic.gpu_levels))
    if not names or not spec.gpus:
        return
    why = ""
    if spec.source.method is Method.NVIDIA_SMI and any(_has_data_direct(gpu.product) for gpu in spec.gpus):
        why = ": nvidia-smi does not show the function beside a GPU that carries their data (Data Direct)"
    yield f"which GPUs {', '.join(names)} {'is' if len(names) == 1 else 'are'} near is not known{why}"


def _has_data_direct(product: str | None) -> bool:
    known = product_of(product)
    return known is not None and known.has_data_direct


def _lacking(spec: NodeTopologySpec) -> Iterator[str]:
    """GPUs that show fewer NVLinks than their product has, or than others of it in the machine: a text tells no link
    that is down, but for its absence."""
    shown = dict(zip((gpu.index for gpu in spec.gpus), spec.nvlink.links_per_gpu, strict=False))
    for pair in spec.nvlink.pairs:
        for index in (pair.a, pair.b):
            shown[index] = shown.get(index, 0) + pair.links
    most: dict[str | None, int] = {}
    for gpu in spec.gpus:
        most[gpu.product] = max(most.get(gpu.product, 0), shown.get(gpu.index, 0))
    lacking: dict[str, list[int]] = {}
    for gpu in spec.gpus:
        links, known = shown.get(gpu.index, 0), product_of(gpu.product)
        if known is None:
            continue
        if known.lacks(links):
            lacking.setdefault(f"{links} of the {known.links} NVLinks of {gpu.product}", []).append(gpu.index)
        elif 0 < links < most[gpu.product] and not known.bridge:
            words = f"{links} NVLinks where others of {gpu.product} show {most[gpu.product]}"
            lacking.setdefault(words, []).append(gpu.index)
    for words, gpus in lacking.items():
        who = f"GPU {gpus[0]} shows" if len(gpus) == 1 else f"GPUs {', '.join(map(str, gpus))} show"
        yield f"{who} {words}: some may be down, which nvidia-smi nvlink -s tells"


def _numa(node: int | None) -> str:
    return UNKNOWN if node is None else str(node)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
