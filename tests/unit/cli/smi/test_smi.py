"""What a text of nvidia-smi topo -m says, and how one that cannot be believed is refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.recorded import RecordedSource
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Confidence, Method, NodeTopologySpec
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.api.objects import NodeTopology, ObjectMeta
from closeknit.cli.smi.paste import MAX_LINE_LENGTH, lines
from closeknit.cli.smi.reading import read
from closeknit.cli.smi.torn import Torn
from closeknit.cli.topology.machine_sheet import sheet
from closeknit.machine.products import product_of
from harness import smi_text

DUMPS = Path(__file__).parents[3] / "fixtures" / "dumps"
FULL_LEGEND = "\nLegend:\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"


def table(*rows: str) -> str:
    """Rows with tabs for their blanks."""
    return "\n".join("\t".join(row.split()) for row in rows) + "\n"


def matrix(word: str, count: int, first: int = 0) -> str:
    """All pairs alike."""
    names = [f"GPU{number}" for number in range(first, first + count)]
    rows = [" ".join([name, *("X" if name == other else word for other in names)]) for name in names]
    return table(" ".join(names), *rows)


def listed(count: int, product: str) -> str:
    return "".join(f"GPU {n}: {product} (UUID: GPU-00000000-0000-0000-0000-{n:012d})\n" for n in range(count))


@pytest.mark.parametrize("count", [4, 8])
def test_of_real_machines_as_many_links_as_nvml_says(count: int) -> None:
    name = f"hgx-h200-{count}gpu-vm"
    spec = read((DUMPS / f"{name}.nvidia-smi-topo-m.txt").read_text())
    measured = discover(RecordedSource(DUMPS / f"{name}.json").read(), Method.RECORDED).spec
    assert spec.nvlink.switched
    assert spec.nvlink.links_per_gpu == measured.nvlink.links_per_gpu
    assert spec.source.topology_confidence is Confidence.HIGH
    assert {gpu.numa_node for gpu in spec.gpus} == {0}


def test_two_gpus_alone_are_read_as_direct_without_confidence() -> None:
    spec = read((DUMPS / "hgx-h200-2gpu-vm.nvidia-smi-topo-m.txt").read_text())
    assert not spec.nvlink.switched
    assert [(pair.a, pair.b, pair.links) for pair in spec.nvlink.pairs] == [(0, 1, 18)]
    assert spec.source.topology_confidence is Confidence.LOW


SWITCHED, DIRECT = (True, Confidence.HIGH), (False, Confidence.HIGH)
UNSURE = (False, Confidence.LOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(matrix("NV18", 8), SWITCHED, id="more links than any product has"),
        pytest.param(matrix("NV12", 4), UNSURE, id="36 links, which some product may have"),
        pytest.param(listed(4, "NVIDIA A100-SXM4-80GB") + matrix("NV12", 4), SWITCHED, id="more than this product has"),
        pytest.param(listed(4, "NVIDIA A100-SXM4-80GB") + matrix("NV4", 4), DIRECT, id="all that this product has"),
        pytest.param(listed(4, "NVIDIA H100 80GB HBM3") + matrix("NV4", 4), UNSURE, id="fewer than this product has"),
        pytest.param(listed(2, "NVIDIA H200") + matrix("NV18", 2), UNSURE, id="two GPUs, all that this product has"),
        pytest.param(
            table("GPU0 GPU1 GPU2", "GPU0 X NV2 SYS", "GPU1 NV2 X NV1", "GPU2 SYS NV1 X"),
            DIRECT,
            id="a chain, which no switch makes",
        ),
        pytest.param(
            table("GPU0 GPU1 GPU2", "GPU0 X NV4 SYS", "GPU1 NV4 X SYS", "GPU2 SYS SYS X"),
            UNSURE,
            id="one bridged pair",
        ),
        pytest.param(matrix("SYS", 4) + FULL_LEGEND, DIRECT, id="none, though the legend has them"),
        pytest.param(matrix("SYS", 4), UNSURE, id="none, and it may be of topo -mp"),
    ],
)
def test_whether_links_lead_into_switches(text: str, expected: tuple[bool, Confidence]) -> None:
    spec = read(text)
    assert (spec.nvlink.switched, spec.source.topology_confidence) == expected


def test_a_gpu_that_the_switches_do_not_reach_has_no_links() -> None:
    text = matrix("NV18", 8).replace("NV18", "SYS")
    rows = [line.split("\t") for line in text.splitlines()]
    for a in range(8):
        for b in range(8):
            if a != b and 2 not in (a, b):
                rows[a + 1][b + 1] = "NV18"
    assert read("\n".join("\t".join(row) for row in rows)).nvlink.links_per_gpu == [18, 18, 0, 18, 18, 18, 18, 18]


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("NVIDIA A100-SXM4-80GB", 12),
        ("NVIDIA H100 NVL", 12),
        ("NVIDIA H100 80GB HBM3", 18),
        ("NVIDIA H200", 18),
        ("Tesla V100-SXM3-32GB", 6),
        ("NVIDIA RTX A6000", 4),
        ("NVIDIA GB200", 18),
        ("NVIDIA B300 SXM6 AC", 18),
        ("NVIDIA GB300", 18),
        ("NVIDIA RTX A4000", None),
        ("Tesla V100-PCIE-16GB", None),
        ("NVIDIA L40S", None),
        (None, None),
    ],
)
def test_products(name: str | None, links: int | None) -> None:
    product = product_of(name)
    assert (product.links if product else None) == links


AFFINITY = "GPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"


@pytest.mark.parametrize(
    ("text", "numa"),
    [
        pytest.param(
            AFFINITY + "GPU0\t X \tSYS\t0-31\t0\t\tN/A\nGPU1\tSYS\t X \t32-63\t1\t\tN/A\n", [0, 1], id="plain"
        ),
        pytest.param(AFFINITY + "GPU0 X SYS 0-31 0 N/A\nGPU1 SYS X 32-63 1 N/A", [0, 1], id="blanks"),
        pytest.param(AFFINITY + "GPU0\tX\tSYS\t\t0\t\tN/A\nGPU1\tSYS\tX\t\t1\t\tN/A", [0, 1], id="no CPUs, by the tab"),
        pytest.param(AFFINITY + "GPU0 X SYS 0 N/A\nGPU1 SYS X 1 N/A", [None, None], id="no CPUs, and no tab to tell"),
        pytest.param(AFFINITY + "GPU0 X SYS 0-31 0 N/A\nGPU1 SYS X N/A N/A N/A", [0, None], id="unknown of one GPU"),
        pytest.param(AFFINITY + "GPU0 X SYS 0,32 0,3-9 2\nGPU1 SYS X 32 1 10", [None, 1], id="a set, and a node"),
        pytest.param(
            "GPU0 GPU1 CPU Affinity\nGPU0 X SYS 0-9,20-29\nGPU1 SYS X 10-19", [None, None], id="an old driver"
        ),
        pytest.param(
            "GPU0 GPU1 CPU Affinity NUMA Aff\nGPU0 X SYS 0-31 0\nGPU1 SYS X 32-63 1", [0, 1], id="a cut header"
        ),
        pytest.param("GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X", [None, None], id="no affinity at all"),
    ],
)
def test_numa_nodes(text: str, numa: list[int | None]) -> None:
    assert [gpu.numa_node for gpu in read(text).gpus] == numa


def test_one_gpu() -> None:
    spec = read("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-15\t0\t\tN/A\n")
    assert [(gpu.index, gpu.numa_node) for gpu in spec.gpus] == [(0, 0)]


def test_sixteen_gpus_and_40_nics() -> None:
    names = [*(f"GPU{n}" for n in range(16)), *(f"NIC{n}" for n in range(40))]
    rows = [
        " ".join(
            [name, *("X" if name == other else "NV6" if "GPU" in name and "GPU" in other else "SYS" for other in names)]
        )
        for name in names
    ]
    spec = read(table(" ".join(names), *rows))
    assert (len(spec.gpus), len(spec.nics or ()), spec.nvlink.links_per_gpu) == (16, 40, [6] * 16)


def test_nics_have_the_names_of_the_legend_and_what_those_say() -> None:
    rows = ("GPU0 X PIX NODE N/A", "NIC0 PIX X SYS SYS", "NIC1 NODE SYS X SYS", "NIC2 N/A SYS SYS X")
    text = table("GPU0 NIC0 NIC1 NIC2", *rows)
    nics = read(text + "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: rocep65s0f0\n").nics
    assert [(nic.name, nic.transport, nic.state, nic.gpu_levels) for nic in nics or ()] == [
        ("mlx5_0", None, None, ["PIX"]),
        ("rocep65s0f0", "RoCE", None, ["NODE"]),
        ("NIC2", None, None, []),
    ]


def test_products_uuids_addresses_and_versions_of_the_other_outputs() -> None:
    smi = (
        "| NVIDIA-SMI 580.159.04    Driver Version: 580.159.04    CUDA Version: 13.0     |\n"
        "|   0  NVIDIA A100-SXM...  On   | 00000000:07:00.0 Off |                    0 |\n"
        "|   1  NVIDIA A100-SXM...  On   | 00000009:0F:00.0 Off |                    0 |\n"
    )
    spec = read(smi + listed(2, "NVIDIA A100-SXM4-80GB") + matrix("SYS", 2))
    assert (spec.source.driver_version, spec.source.cuda_version) == ("580.159.04", "13.0")
    assert spec.gpus[1].wire() == {
        "index": 1,
        "uuid": "GPU-00000000-0000-0000-0000-000000000001",
        "pciAddress": "0009:0f:00.0",
        "product": "NVIDIA-A100-SXM4-80GB",
        "computeCapability": "8.0",
    }


def test_what_is_said_of_other_gpus_is_of_another_machine() -> None:
    (gpu, *_) = read(listed(8, "NVIDIA H200") + matrix("NV12", 4)).gpus
    assert (gpu.product, gpu.uuid, gpu.pci_address) == (None, None, "ffffffff:00:00.0")


def test_a_table_of_peer_access_is_passed_over() -> None:
    peers = table("GPU0 GPU1", "GPU0 X OK", "GPU1 OK X")
    assert read(peers + "\n" + matrix("PHB", 2) + "\n" + peers).pcie.levels == ["X PHB", "PHB X"]


@pytest.mark.parametrize(
    ("table_rows", "levels", "confidence"),
    [
        pytest.param(("X NV4 PIX", "NV4 X PHB", "PIX PHB X"), ["X PHB", "PHB X"], "High", id="by a nearer NIC"),
        pytest.param(("X NV4 PIX", "NV4 X PIX", "PIX PIX X"), ["X PIX", "PIX X"], "High", id="as near as can be"),
        pytest.param(("X NV4 NODE", "NV4 X NODE", "NODE NODE X"), ["X NODE", "NODE X"], "Low", id="at most so far"),
        pytest.param(("X NV4 N/A", "NV4 X NODE", "N/A NODE X"), [], None, id="not at all"),
    ],
)
def test_the_level_that_an_nvlink_hides(table_rows: tuple[str, ...], levels: list[str], confidence: str | None) -> None:
    names = ("GPU0", "GPU1", "NIC0")
    spec = read(table(" ".join(names), *(f"{name} {row}" for name, row in zip(names, table_rows, strict=True))))
    assert (spec.pcie.levels, spec.source.pcie_confidence) == (levels, confidence)


MESH = ("GPU0 GPU1 GPU2 GPU3 CPU Affinity NUMA Affinity", "GPU0 X NV2 SYS NV1 0-19 {}", "GPU1 NV2 X NV1 SYS 0-19 {}",
        "GPU2 SYS NV1 X NV2 20-39 {}", "GPU3 NV1 SYS NV2 X 20-39 {}")  # fmt: skip
NEAR = ["X NODE SYS SYS", "NODE X SYS SYS", "SYS SYS X NODE", "SYS SYS NODE X"]
FAR = ["X SYS SYS SYS", "SYS X SYS SYS", "SYS SYS X SYS", "SYS SYS SYS X"]


@pytest.mark.parametrize(
    ("numa", "levels"),
    [
        pytest.param(("0", "0", "1", "1"), NEAR, id="of one NUMA node at most NODE, of two SYS"),
        pytest.param(("N/A",) * 4, FAR, id="as far as can be"),
        pytest.param(("0-1", "0-1", "0-1", "0-1"), FAR, id="of a set of nodes nobody says which"),
    ],
)
def test_what_nvlinks_hide_takes_no_level_from_what_they_leave(numa: tuple[str, ...], levels: list[str]) -> None:
    spec = read("\n".join(row.format(node) for row, node in zip(MESH, ("", *numa), strict=True)))
    assert (spec.pcie.levels, spec.source.pcie_confidence) == (levels, Confidence.LOW)


def test_eight_gpus_in_a_mesh_keep_every_level_that_no_nvlink_hides() -> None:
    """A DGX-1V prints SYS for 12 of its 28 pairs."""
    spec = discover(readings_of(load_profile("dgx1-v100"), "n"), Method.SIMULATED).spec
    without_nics = NodeTopologySpec.parse({**spec.wire(), "nics": []})
    again = read(smi_text.topo(without_nics, NodeTopologyStatus()))
    kept = [(row.split(), old.split()) for row, old in zip(again.pcie.levels, spec.pcie.levels, strict=True)]
    pairs = {(pair.a, pair.b) for pair in spec.nvlink.pairs}
    shown = [(a, b) for a in range(8) for b in range(a + 1, 8) if (a, b) not in pairs]
    assert len(shown) == 12
    assert all(kept[a][0][b] == kept[a][1][b] == "SYS" for a, b in shown)


GB300 = (
    "GPU0 GPU1 GPU2 GPU3 NIC0 NIC1 NIC2 NIC3",
    "GPU0 X NV18 NV18 NV18 SYS SYS SYS SYS",
    "GPU1 NV18 X NV18 NV18 SYS SYS SYS SYS",
    "GPU2 NV18 NV18 X NV18 SYS SYS SYS SYS",
    "GPU3 NV18 NV18 NV18 X SYS SYS SYS SYS",
    "NIC0 SYS SYS SYS SYS X SYS SYS SYS",
    "NIC1 SYS SYS SYS SYS SYS X SYS SYS",
    "NIC2 SYS SYS SYS SYS SYS SYS X SYS",
    "NIC3 SYS SYS SYS SYS SYS SYS SYS X",
)


@pytest.mark.parametrize(("product", "is_known"), [("NVIDIA GB300", False), ("NVIDIA GB200", True)])
def test_what_a_text_does_not_know_of_data_direct_is_not_taken_from_it(product: str, is_known: bool) -> None:
    """The table of DRANET's example of OKE's BM.GPU.GB300.4; rdma_topo pairs each NIC with one GPU there."""
    spec = read(listed(4, product) + table(*GB300))
    assert [bool(nic.gpu_levels) for nic in spec.nics or ()] == [is_known] * 4
    notes = sheet(NodeTopology(metadata=ObjectMeta(name="n"), spec=spec)).notes
    assert any("which GPUs NIC0, NIC1, NIC2, NIC3 are near is not known" in note for note in notes) is not is_known


def test_a_level_that_is_told_tells_the_next() -> None:
    """Of GPU0 and GPU2 the NIC beside GPU1 says nothing; GPU1 does, once it is known how far that is from GPU0."""
    rows = ("GPU0 X NV4 NV4 PIX", "GPU1 NV4 X SYS PXB", "GPU2 NV4 SYS X N/A", "NIC0 PIX PXB N/A X")
    spec = read(table("GPU0 GPU1 GPU2 NIC0", *rows))
    assert (spec.pcie.levels, spec.source.pcie_confidence) == (["X PXB SYS", "PXB X SYS", "SYS SYS X"], "High")


@pytest.mark.parametrize(
    ("table_rows", "confidence"),
    [
        pytest.param(("X PIX SYS", "PIX X SYS", "SYS SYS X"), "High", id="a tree"),
        pytest.param(("X PIX PXB", "PIX X PIX", "PXB PIX X"), "High", id="one switch below another"),
        pytest.param(("X PIX SYS", "PIX X PIX", "SYS PIX X"), "Low", id="two that are beside a third and far apart"),
        pytest.param(("X NODE PHB", "NODE X SYS", "PHB SYS X"), "Low", id="three words for three"),
    ],
)
@pytest.mark.parametrize("third", ["GPU2", "NIC0"])
def test_levels_that_no_tree_has_are_of_low_confidence(
    table_rows: tuple[str, ...], confidence: str, third: str
) -> None:
    names = ("GPU0", "GPU1", third)
    spec = read(table(" ".join(names), *(f"{name} {row}" for name, row in zip(names, table_rows, strict=True))))
    assert spec.source.pcie_confidence == confidence


def test_where_nothing_is_left_no_level_is_told() -> None:
    assert read(matrix("NV12", 4)).pcie.levels == []


GOOD = ("GPU0 GPU1 NIC0", "GPU0 X NV4 PIX", "GPU1 NV4 X SYS", "NIC0 PIX SYS X")
WORDS = "X, NV and a number, PIX, PXB, PHB, NODE, SYS or N/A"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        pytest.param(
            "nothing", None,
            "has no table of nvidia-smi topo -m: a line that names GPU0, GPU1, … and a row for each of them",
            id="no table",
        ),
        pytest.param(
            "RDMA NIC=0000:03:00.0, GPU=0009:06:00.0, RDMA DMA Function=0009:03:00.0\n\tNUMA Node: 0\n", None,
            "is what rdma_topo prints: which NIC belongs to which GPU, and not what joins the GPUs; give that of "
            "nvidia-smi topo -m, or have the node agent read both",
            id="rdma_topo",
        ),
        pytest.param(
            listed(1, "NVIDIA H200") + "\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n", None,
            "is what nvidia-smi nvlink prints: the links of each GPU, and not where they lead; give that of nvidia-smi "
            "topo -m",
            id="states of links",
        ),
        pytest.param(
            listed(2, "NVIDIA H200"), None,
            "is what nvidia-smi -L prints: which GPUs there are, and not what joins them; give that of nvidia-smi topo "
            "-m",
            id="a list of GPUs",
        ),
        pytest.param(
            "|   0  NVIDIA A100-SXM...  On   | 00000000:07:00.0 Off |                    0 |\n", None,
            "is what nvidia-smi alone prints: which GPUs there are, and not what joins them; give that of nvidia-smi "
            "topo -m",
            id="nvidia-smi alone",
        ),
        pytest.param(
            "==============NVSMI LOG==============\n", None,
            "is what nvidia-smi -q prints, which tells no distances; give that of nvidia-smi topo -m", id="its log",
        ),
        pytest.param(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", None,
            "is what nvidia-smi prints where it reaches no GPU; give that of nvidia-smi topo -m on the machine itself",
            id="no driver",
        ),
        pytest.param(
            "apiVersion: closeknit.dev/v1alpha1\nkind: NodeTopology\n", None,
            "is a file of Kubernetes objects; give it by --filename", id="an object",
        ),
        pytest.param(
            "=== ROCm System Management Interface ===\n", None,
            "is what rocm-smi prints, of AMD's GPUs; closeknit places NVIDIA's", id="AMD's",
        ),
        pytest.param(
            table("GPU0 GPU1", "GPU0 X OK", "GPU1 OK X"), None,
            "is what nvidia-smi topo -p2p prints, which tells no distances; give that of nvidia-smi topo -m",
            id="peer access alone",
        ),
        pytest.param(
            table(*GOOD[:3]), 1, "row NIC0 is missing: the header names it, and 2 rows are there", id="a row is missing"
        ),
        pytest.param(
            table(*GOOD[:2], "GPU1 NV4 X", GOOD[3]), 3, "row GPU1, column NIC0: is missing; the row has 2 of 3 cells",
            id="a cell is missing",
        ),
        pytest.param(
            table(*GOOD[:2], "GPU1 NV4 X 0-31 0 N/A", GOOD[3]), 3,
            "row GPU1, column NIC0: is missing; the row has 2 of 3 cells",
            id="a cell is missing before the affinity",
        ),
        pytest.param(
            table(*GOOD[:2], "GPU1 NV4 X SYS SYS", GOOD[3]), 3, "row GPU1: has SYS after the last of the 3 columns",
            id="a cell too many",
        ),
        pytest.param(
            table(*GOOD[:2], "GPU1 NV4 X FAR", GOOD[3]), 3, f"row GPU1, column NIC0: is 'FAR'; expected {WORDS}",
            id="an unknown word",
        ),
        pytest.param(
            table(GOOD[0], "GPU0 X NV5 PIX", *GOOD[2:]), 2,
            "row GPU0, column GPU1: is NV5, but row GPU1, column GPU0 is NV4; both must be the same",
            id="asymmetric",
        ),
        pytest.param(
            table(*GOOD[:2], "GPU1 NV4 PIX SYS", GOOD[3]), 3,
            "row GPU1, column GPU1: is PIX; X stands where row and column are the same, and nowhere else",
            id="no X",
        ),
        pytest.param(
            table("GPU0 GPU1 NIC0", "GPU0 X SYS NV4", "GPU1 SYS X SYS", "NIC0 NV4 SYS X"), 2,
            "row GPU0, column NIC0: is NV4; only GPUs have NVLinks",
            id="an NVLink to a NIC",
        ),
        pytest.param(
            table("GPU0 GPU1", "GPU0 X NV180-31", "GPU1 NV18 X"), 2,
            "row GPU0, column GPU1: is NV180; no GPU has more than 36 links",
            id="a count that ran into what follows",
        ),
        pytest.param(table("GPU0 GPU1", "GPU0 X SYS", "GPU1 SYS X", "GPU2 SYS SYS"), 4,
            "row GPU2: the header has no such column", id="a row too many"),
        pytest.param(
            table("GPU0 GPU1", "GPU0 X SYS", "GPU0 X SYS", "GPU1 SYS X"), 3,
            "row GPU0 is there twice, first in line 2",
            id="a row twice",
        ),
        pytest.param(table("GPU0 GPU0", "GPU0 X SYS"), 1, "the header names GPU0 twice", id="a column twice"),
        pytest.param(
            table("GPU0 GPU99", "GPU0 X SYS", "GPU99 SYS X"), 1, "the header names GPU99; expected GPU0 to GPU63",
            id="a GPU that NVML cannot have",
        ),
        pytest.param(
            matrix("SYS", 2) + "\n" + matrix("SYS", 3), 5,
            "a second table, of other devices than that in line 1; give one machine",
            id="two machines",
        ),
        pytest.param(
            matrix("SYS", 2) + "\n" + matrix("PHB", 2), 5,
            "row GPU0, column GPU1: is PHB, but SYS in the table in line 1; give one machine",
            id="two machines of one size",
        ),
        pytest.param(
            table("GPU0 GPU1 GPU2 GPU3", "GPU0 X NV18 NV18 NV18", "GPU1 NV18 X NV9 NV18", "GPU2 NV18 NV9 X NV18",
                  "GPU3 NV18 NV18 NV18 X"), 1,
            "row GPU1, column GPU2: is NV9; GPU1 shows 18 links elsewhere, and GPU2 18, more than their product can "
            "have without switches",
            id="neither switches nor direct links",
        ),
        pytest.param(
            "GPU0 NIC0 NIC1\nGPU0 X PIX PIX\nNIC0 PIX X PIX\nNIC1 PIX PIX X\n\n NIC0: mlx5_0\n NIC1: mlx5_0", 1,
            "nics[1]: mlx5_0:1 is also that of nics[0]",
            id="two NICs of one name",
        ),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_believed(text: str, line: int | None, message: str) -> None:
    with pytest.raises(Torn) as refused:
        read(text)
    assert (refused.value.line, refused.value.message) == (line, message)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("GPU0 GPU1\n" * 20_000, id="headers without rows"),
        pytest.param("GPU0" + " " * 1_000_000 + "CPU", id="a long line"),
        pytest.param("\n".join(f"GPU{n} GPU{n + 1}" for n in range(20_000)), id="a header without end"),
        pytest.param("|  1  " + "a " * 500_000, id="a row of the other output without end"),
        pytest.param(("| 1 a " * 600 + "\n") * 250, id="rows of the other output in long lines"),
        pytest.param("GPU" + "9" * 4_000 + " GPU1\nGPU1 X NV" + "9" * 4_000, id="large numbers"),
        pytest.param("GPU0 CPU " * (MAX_LINE_LENGTH // 9), id="headings without end"),
    ],
)
def test_a_hostile_text_is_refused_soon(text: str) -> None:
    with pytest.raises(Torn):
        read(text)


def test_a_line_longer_than_any_of_nvidia_smi_is_passed_over() -> None:
    assert lines("a" * MAX_LINE_LENGTH + "\n" + "b" * (MAX_LINE_LENGTH + 1)) == ["a" * MAX_LINE_LENGTH, ""]


PLAIN = matrix("NV18", 3) + FULL_LEGEND + "NIC0: mlx5_0\n" + listed(3, "NVIDIA H200")
PIECES = st.sampled_from(
    [*"\t\n |X:0", "NV18", "SYS", "GPU1", "GPU", "NIC0", "\x1b[4m", "CPU Affinity", "\u00a0", "N/A", ""]
)


@settings(deadline=None)  # other tests may have the processor
@given(st.lists(st.tuples(st.integers(0, len(PLAIN)), st.integers(0, 8), PIECES), max_size=6))
def test_whatever_is_pasted_is_read_or_refused(changes: list[tuple[int, int, str]]) -> None:
    text = PLAIN
    for at, length, piece in changes:
        text = text[:at] + piece + text[at + length :]
    try:
        spec = read(text)
    except Torn as error:
        assert error.message
    else:
        assert isinstance(spec, NodeTopologySpec)


def test_headings_that_are_glued_to_each_other() -> None:
    text = """\
        GPU0    GPU1    CPU AffinityNUMA AffinityGPU NUMA ID
GPU0     X      PHB     0-19,40-59  0             N/A
GPU1    PHB      X      0-19,40-59  1             N/A
"""
    spec = read(text)
    assert [gpu.index for gpu in spec.gpus] == [0, 1]
