"""A NodeTopology from what nvidia-smi printed. What no output says is absent."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from closeknit.api.nodetopology import (
    Confidence,
    Gpu,
    Method,
    Nic,
    NodeTopologySpec,
    Nvlink,
    NvlinkPair,
    Pcie,
    Provenance,
    Transport,
)
from closeknit.cli.smi.distances import distances
from closeknit.cli.smi.matrix import UNKNOWN, SmiTable, links_of, tables
from closeknit.cli.smi.paste import lines
from closeknit.cli.smi.surroundings import Named, Surroundings, surroundings
from closeknit.cli.smi.torn import Torn
from closeknit.machine.checks import InvalidTopology, check
from closeknit.machine.product import product
from closeknit.machine.products import MOST_LINKS, Product, product_of
from closeknit.placement.values.sentences import count

# No table prints PCI addresses. NVML writes ffffffff for a hidden domain, and numbers GPUs in the order of
# their addresses: an address there names no device, and keeps that order.
UNSEEN_DOMAIN = "ffffffff"
# Names that udev gives RDMA devices say what they speak; mlx5_0 does not.
_TRANSPORTS = {"roce": Transport.ROCE, "ib": Transport.INFINIBAND, "iw": Transport.IWARP}
_SHOWS_NVLINKS = "NV#"  # in the legend
_PERSISTENT = re.compile(r"(roce|ib|iw)[opPsx]\w*\d")


def read(text: str) -> NodeTopologySpec:
    """The machine that the text shows. Raises Torn.

    Of several tables, those of one machine are one: `topo -mp` shows the PCIe levels that NVLinks hide in `topo -m`.
    """
    printed = lines(text)
    table, shown = _one(tables(printed))
    beside = surroundings(printed)
    named = [beside.gpus.get(name) for name in table.names[: table.gpu_count]]
    if set(beside.gpus) != set(table.names[: table.gpu_count]):
        named = [None] * table.gpu_count  # of another machine
    levels = distances(shown)
    products = [product_of(gpu.product) if gpu else None for gpu in named]
    nvlink, is_sure = _nvlink(table, products)
    if not nvlink.switched and not nvlink.pairs:
        is_sure = _SHOWS_NVLINKS in text  # else it may be of topo -mp, which leaves them out
    spec = NodeTopologySpec(
        source=Provenance(
            method=Method.NVIDIA_SMI,
            driver_version=beside.driver_version,
            cuda_version=beside.cuda_version,
            pcie_confidence=levels.confidence,
            topology_confidence=Confidence.HIGH if is_sure else Confidence.LOW,
        ),
        gpus=[_gpu(table, row, gpu) for row, gpu in enumerate(named)],
        nvlink=nvlink,
        pcie=Pcie(levels=[" ".join(row) for row in levels.rows]),
        nics=_nics(table, beside, hides_places=any(known is not None and known.has_data_direct for known in products)),
    )
    try:
        check(spec)
    except InvalidTopology as error:
        raise Torn(table.line, str(error)) from None
    return spec


def _one(found: Sequence[SmiTable]) -> tuple[SmiTable, SmiTable]:
    """The table of NVLinks, and the same with the PCIe levels that a second one shows in their place."""
    links = levels = found[0]
    for table in found[1:]:
        if table.names != links.names:
            raise Torn(table.line, f"a second table, of other devices than that in line {links.line}; give one machine")
        more, fewer = ([list(row) for row in each.cells] for each in (links, levels))
        for a, name in enumerate(links.names):
            for b, other in enumerate(links.names):
                link, level, new = links.cells[a][b], levels.cells[a][b], table.cells[a][b]
                if new in (link, level):
                    continue
                if links_of(level) and not links_of(new):
                    fewer[a][b] = new
                elif links_of(new) and not links_of(link):
                    more[a][b] = new
                else:
                    place = f"row {name}, column {other}: is {new}"
                    raise Torn(table.line, f"{place}, but {link} in the table in line {links.line}; give one machine")
        links = replace(links, cells=tuple(map(tuple, more)))
        levels = replace(levels, cells=tuple(map(tuple, fewer)))
    return links, levels


def _gpu(table: SmiTable, row: int, named: Named | None) -> Gpu:
    known = product_of(named.product) if named else None
    index = int(table.names[row].removeprefix("GPU"))
    return Gpu(
        index=index,
        uuid=named.uuid if named else None,
        pci_address=(named.pci_address if named else None) or f"{UNSEEN_DOMAIN}:{index:02x}:00.0",
        product=product(named.product) if named else None,
        compute_capability=known.compute_capability if known else None,
        numa_node=_numa_node(table.numa[row]),
    )


def _numa_node(text: str) -> int | None:
    """One node; None for a set, which machines print whose GPU memory is a NUMA node."""
    return int(text) if re.fullmatch(r"\d{1,3}", text) else None


def _nics(table: SmiTable, beside: Surroundings, *, hides_places: bool) -> list[Nic]:
    """`hides_places`: their levels are those of another function than the one that reaches GPU memory."""
    count = table.gpu_count
    found = []
    for row in range(count, len(table.names)):
        name = beside.nics.get(table.names[row], table.names[row])
        levels = list(table.cells[row][:count])
        found.append(
            Nic(name=name, transport=_transport(name), gpu_levels=[] if hides_places or UNKNOWN in levels else levels)
        )
    return found


def _transport(name: str) -> Transport | None:
    match = _PERSISTENT.match(name)
    return _TRANSPORTS[match[1]] if match else None


def _nvlink(table: SmiTable, products: Sequence[Product | None]) -> tuple[Nvlink, bool]:
    """The NVLinks, and whether it is sure that they are direct, or that they are not.

    A cell counts the links between two GPUs, or those that both have into switches. So where the counts of a GPU sum up
    to more links than its product has, they lead into switches; where the product is not known, to more than any has.
    Else they are read as direct. That is sure where switches would show otherwise, or the sum is all that the product
    has; two GPUs alone show the same either way.
    """
    count = table.gpu_count
    links = [[links_of(table.cells[a][b]) for b in range(count)] for a in range(count)]
    wired = [row for row in range(count) if any(links[row])]
    same = {products[row] for row in wired}
    known = next(iter(same)) if len(same) == 1 else None
    facts = {"generation": known.generation, "link_bandwidth_gb_s": known.link_bandwidth_gb_s} if known else {}
    into = [max(row, default=0) for row in links]
    most = [product.links if product else MOST_LINKS for product in products]
    if any(sum(links[row]) > most[row] for row in wired):
        _check_switched(table, links, into)
        return Nvlink(switched=True, links_per_gpu=into, **facts), True
    numbers = [int(name.removeprefix("GPU")) for name in table.names[:count]]
    pairs = [
        NvlinkPair(a=min(numbers[a], numbers[b]), b=max(numbers[a], numbers[b]), links=links[a][b])
        for a, b in combinations(range(count), 2)
        if links[a][b]
    ]
    uses_all = len(wired) > 2 and all(
        product is not None and sum(links[row]) == product.links for row, product in enumerate(products) if row in wired
    )
    return Nvlink(pairs=pairs, **facts), uses_all or _first_not_switched(links, into) is not None


def _first_not_switched(links: Sequence[Sequence[int]], into: Sequence[int]) -> tuple[int, int] | None:
    """Two GPUs whose links no switches explain: over those, two share as many as the one with fewer has."""
    for a, b in combinations(range(len(links)), 2):
        if links[a][b] != min(into[a], into[b]):
            return a, b
    return None


def _check_switched(table: SmiTable, links: Sequence[Sequence[int]], into: Sequence[int]) -> None:
    """Raises Torn for what neither switches nor direct links explain."""
    found = _first_not_switched(links, into)
    if found is not None:
        a, b = found
        place = f"row {table.names[a]}, column {table.names[b]}: is {table.cells[a][b]}"
        most = f"{table.names[a]} shows {count(into[a], 'link')} elsewhere, and {table.names[b]} {into[b]}"
        raise Torn(table.line, f"{place}; {most}, more than their product can have without switches")
