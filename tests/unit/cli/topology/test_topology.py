"""`closeknit topology`: machines of files, of a cluster and of pasted texts, as table, object and picture."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from aiohttp import web
from typer.testing import CliRunner, Result

from closeknit.agent.discovery.simulated.profile import NO_FAULTS, Faults, LinkFault
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.simulated import load_profile, profile_names
from closeknit.api.nodetopology import Method
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.api.objects import NodeTopology, ObjectMeta
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.main import app
from closeknit.cli.topology.command import TopologyArguments, show
from closeknit.cli.topology.drawing import drawing
from closeknit.cli.topology.machine_sheet import sheet
from faults.http_server import Handler, serving, write_kubeconfig
from harness.machines import node_object

CLUSTER = Path(__file__).parents[4] / "examples" / "cluster.yaml"
PAIR = (
    "\tGPU0\tGPU1\tNIC0\tNUMA Affinity\n"
    "GPU0\t X \tNV4\tPIX\t0\n"
    "GPU1\tNV4\t X \tSYS\t1\n"
    "NIC0\tPIX\tSYS\t X \n"
    "\nNIC0: mlx5_0\n"
)
BROKEN = Faults(dead_gpus=(2,), links_down=(LinkFault(1, 4),), mig_gpus=(5,), nics_down=("mlx5_3",))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["topology", *map(str, arguments)])


def shown(result: Result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return [line.rstrip() for line in result.stdout.splitlines()]


def simulated(profile: str, faults: Faults, name: str = "gpu-01") -> NodeTopology:
    found = discover(readings_of(load_profile(profile), name, faults), Method.SIMULATED)
    status = NodeTopologyStatus(gpus=list(found.gpus), nics=list(found.nics), links_down=list(found.links_down))
    return NodeTopology(metadata=ObjectMeta(name=name), spec=found.spec, status=status)


def parsed(drawn: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawn)  # noqa: S314 -- it is our own


def document(topology: NodeTopology) -> dict[str, object]:
    return {"apiVersion": "closeknit.dev/v1alpha1", "kind": "NodeTopology", **topology.wire()}


@pytest.fixture
def pasted(tmp_path: Path) -> Path:
    file = tmp_path / "topo.txt"
    file.write_text(PAIR)
    return file


def test_a_pasted_text(pasted: Path) -> None:
    assert shown(run("--from-smi", pasted)) == [
        "pasted: 2 GPUs of unknown product; NVLink, direct links",
        "        GPU0  GPU1  NUMA  STATE",
        "GPU0    X     NV4   0",
        "GPU1    NV4   X     1",
        "mlx5_0  PIX   SYS   -",
        "NVLink islands: 0,1",
        "- read from a text of nvidia-smi",
        "- low confidence in NVLink: from what was read, switches and direct links look the same",
    ]


def test_no_nvlink_in_a_text_without_legend_is_not_sure(pasted: Path) -> None:
    pasted.write_text(PAIR.replace("NV4", "SYS"))
    lines = shown(run("--from-smi", pasted))
    assert lines[0] == "pasted: 2 GPUs of unknown product; no NVLink between them"
    assert lines[-1] == "- low confidence in NVLink: from what was read, there may be some"


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_as_an_object_it_is_read_again(pasted: Path, tmp_path: Path, form: str) -> None:
    written = tmp_path / f"object.{form}"
    written.write_text(run("gpu-07", "--from-smi", pasted, "-o", form).stdout)
    assert shown(run("-f", written)) == shown(run("gpu-07", "--from-smi", pasted))
    assert yaml.safe_load(written.read_text()) == {
        "apiVersion": "closeknit.dev/v1alpha1",
        "kind": "NodeTopology",
        "metadata": {"name": "gpu-07"},
        "spec": {
            "source": {"method": "NvidiaSmi", "pcieConfidence": "High", "topologyConfidence": "Low"},
            "gpus": [
                {"index": 0, "pciAddress": "ffffffff:00:00.0", "numaNode": 0},
                {"index": 1, "pciAddress": "ffffffff:01:00.0", "numaNode": 1},
            ],
            "nvlink": {"pairs": [{"a": 0, "b": 1, "links": 4}]},
            "pcie": {"levels": ["X SYS", "SYS X"]},
            "nics": [{"name": "mlx5_0", "gpuLevels": ["PIX", "SYS"]}],
        },
    }


def test_a_plan_can_be_made_on_it(pasted: Path, tmp_path: Path) -> None:
    topology = json.loads(run("gpu-07", "--from-smi", pasted, "-o", "json").stdout)
    node = node_object("gpu-07", "rtx3090-2", plugin=True)
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, topology]}))
    job = yaml.safe_load((CLUSTER.parent / "tensor-4.yaml").read_text())
    job["spec"] |= {"gpus": 2, "parallelism": {"tensor": 2}, "gpu": {}}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    result = CliRunner().invoke(app, ["plan", "-f", str(file), "--cluster", str(cluster), "-o", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["placement"]["nodes"][0]["gpus"] == [0, 1]


@pytest.mark.parametrize(("option", "content"), [("--from-smi", PAIR.encode()), ("-f", CLUSTER.read_bytes())])
def test_a_file_may_be_standard_input(option: str, content: bytes) -> None:
    command = [sys.executable, "-c", "from closeknit.cli.main import main; main()", "topology", option, "-"]
    ended = subprocess.run(command, input=content, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"gpu" in ended.stdout.lower()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_text_that_windows_wrote(tmp_path: Path, pasted: Path, encoding: str) -> None:
    file = tmp_path / "windows.txt"
    file.write_bytes(PAIR.replace("\n", "\r\n").encode(encoding))
    assert shown(run("--from-smi", file)) == shown(run("--from-smi", pasted))


def test_all_nodes_of_a_file_are_listed() -> None:
    assert shown(run("-f", CLUSTER)) == [
        "NODE    GPUS                    NVLINK ISLANDS  NICS  OUT OF USE",
        "gpu-01  8 NVIDIA-H200           8               8     -",
        "gpu-02  8 NVIDIA-H200           8               8     -",
        "gpu-03  8 Tesla-V100-SXM2-32GB  8               4     -",
        "gpu-04  8 NVIDIA-RTX-A6000      2-2-2-2         1     -",
        "gpu-05  8 NVIDIA-H200           8               8     -",
    ]


def test_a_lemon_is_shown(tmp_path: Path) -> None:
    lemon = {"since": "2026-11-20T10:00:00Z", "message": "node gpu-01 ended 2 runs within 7 days"}
    machine = simulated("hgx-h200", NO_FAULTS).wire() | {"apiVersion": "closeknit.dev/v1alpha1", "kind": "NodeTopology"}
    (tmp_path / "nt.json").write_text(json.dumps(machine | {"status": {"lemon": lemon}}))
    told = shown(run("gpu-01", "-f", tmp_path / "nt.json"))
    assert told[-1] == "- lemon since 2026-11-20T10:00:00Z: node gpu-01 ended 2 runs within 7 days"


def test_what_is_out_of_use_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "topology.json"
    file.write_text(json.dumps(document(simulated("hgx-h200", BROKEN))))
    lines = shown(run("-f", file))
    by_name = {line.split()[0]: line for line in lines}
    assert by_name["GPU1"] == "GPU1    NV17  X     NODE  NV17  NV17  NV17  NV17  NV17  0     link 4 down"
    assert by_name["GPU2"].endswith("0     Unhealthy: GPULost")
    assert by_name["GPU5"].endswith("1     MIG: 7 of 1g.18gb")
    assert by_name["mlx5_3"].endswith("0     InfiniBand, Down: PortDown")
    assert "NVLink islands: 0,1,3,4,5,6,7" in lines
    assert shown(run("gpu-01", "-f", file)) == lines


BAD = [
    pytest.param(["gpu-99", "-f", CLUSTER], f"{CLUSTER} has no NodeTopology gpu-99; it has gpu-01, gpu-02, gpu-03, "
        "gpu-04, gpu-05", id="another node"),
    pytest.param(["-f", CLUSTER, "-o", "svg"], "a picture shows one machine; name one of gpu-01, gpu-02, gpu-03, "
        "gpu-04, gpu-05", id="a picture of all"),
    pytest.param(["-f", CLUSTER, "--from-smi", "x"], "give either --filename or --from-smi", id="two files"),
    pytest.param(["--from-smi", "nowhere"], "nowhere: cannot be read: No such file or directory", id="no file"),
    pytest.param(["--from-smi", CLUSTER.parent], f"{CLUSTER.parent}: cannot be read: Is a directory", id="a folder"),
    pytest.param(["--from-smi", "/dev/zero"], "/dev/zero: is larger than 1 MiB", id="without end"),
    pytest.param(["-f", CLUSTER.parent / "tensor-4.yaml"], f"{CLUSTER.parent / 'tensor-4.yaml'}: expected a "
        "NodeTopology, found a TrainingJob",
        id="a job"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), BAD)
def test_nothing_to_show(arguments: list[object], said: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"closeknit: {said}\n")


def test_a_torn_text_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_text("Hello,\n" + PAIR.replace("NV4\t X ", "NV5\t X "))
    said = "row GPU0, column GPU1: is NV4, but row GPU1, column GPU0 is NV5; both must be the same"
    assert run("--from-smi", file).stderr == f"closeknit: {file}:3: {said}\n"


def test_a_nodetopology_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    body = yaml.safe_load_all(CLUSTER.read_text())
    (topology,) = (item for item in body if item["kind"] == "NodeTopology" and item["metadata"]["name"] == "gpu-03")
    topology["spec"]["nvlink"]["pairs"][0]["a"] = 9
    file = tmp_path / "topology.json"
    file.write_text(json.dumps(topology))
    result = run("-f", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("NodeTopology gpu-03: spec.nvlink.pairs[0].a: GPU 9 is not among gpus\n")


@pytest.mark.parametrize("profile", profile_names())
def test_the_picture_of_any_machine_shows_all_of_it(profile: str) -> None:
    topology = simulated(profile, Faults(dead_gpus=(0,)))
    drawn = drawing(sheet(topology))
    words = [element.text or "" for element in parsed(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert drawn == drawing(sheet(topology))
    assert all(f"GPU{gpu.index}" in words for gpu in topology.spec.gpus)
    assert all(any(nic.name in word for word in words) for nic in topology.spec.nics or ())
    assert "GPU0: Unhealthy: GPULost" in words
    width, height = (float(parsed(drawn).attrib[side]) for side in ("width", "height"))
    for element in parsed(drawn).iter("{http://www.w3.org/2000/svg}rect"):
        if "x" in element.attrib:
            x, y, across, down = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
            assert 0 <= x <= x + across <= width
            assert 0 <= y <= y + down <= height


def test_words_of_others_stay_words_in_a_picture(tmp_path: Path) -> None:
    topology = simulated("gh200", Faults(), name="gpu-01")
    gpu = topology.spec.gpus[0].model_copy(update={"product": "<script>\x1b[2J&"})
    spec = topology.spec.model_copy(update={"gpus": [gpu]})
    file = tmp_path / "topology.json"
    file.write_text(json.dumps(document(topology.model_copy(update={"spec": spec}))))
    drawn = run("-f", file, "-o", "svg").stdout
    assert "1 &lt;script&gt;\\x1b[2J&amp;; no NVLink" in drawn
    parsed(drawn)


def of_smi(product: str, *rows: str) -> str:
    """What nvidia-smi -L and topo -m print of a machine of one product."""
    names = [f"GPU{number}" for number in range(len(rows))]
    gpus = [f"GPU {n}: {product} (UUID: GPU-00000000-0000-0000-0000-{n:012d})" for n in range(len(rows))]
    return "\n".join([*gpus, " ".join(names), *map(" ".join, zip(names, rows, strict=True))])


BRIDGED, MESH = ("X NV3", "NV3 X"), ("X NV2 SYS NV1", "NV2 X NV1 SYS", "SYS NV1 X NV2", "NV1 SYS NV2 X")
LACKING = [
    ("NVIDIA RTX A6000", BRIDGED, "GPUs 0, 1 show 3 of the 4 NVLinks of NVIDIA-RTX-A6000"),
    ("NVIDIA A100-PCIE-40GB", ("X NV4", "NV4 X"), None),  # one bridge of three
    ("NVIDIA A100-PCIE-40GB", ("X NV7", "NV7 X"), "GPUs 0, 1 show 7 of the 12 NVLinks of NVIDIA-A100-PCIE-40GB"),
    ("NVIDIA RTX A6000", ("X NV4 SYS", "NV4 X SYS", "SYS SYS X"), None),  # one GPU has no bridge
    ("Tesla V100-SXM2-32GB", MESH, None),  # not every board has wires for all six
    ("Tesla V100-SXM2-32GB", ("X NV2 SYS NV1", "NV2 X NV1 SYS", "SYS NV1 X NV1", "NV1 SYS NV1 X"),
     "GPUs 2, 3 show 2 NVLinks where others of Tesla-V100-SXM2-32GB show 3"),
    ("NVIDIA H200", ("X NV18 NV17 NV18", "NV18 X NV17 NV18", "NV17 NV17 X NV17", "NV18 NV18 NV17 X"),
     "GPU 2 shows 17 of the 18 NVLinks of NVIDIA-H200"),
    ("NVIDIA L40S", ("X SYS", "SYS X"), None),
]  # fmt: skip


@pytest.mark.parametrize(("product", "rows", "said"), LACKING)
def test_links_that_a_product_should_have_are_missed(
    tmp_path: Path, product: str, rows: tuple[str, ...], said: str | None
) -> None:
    (tmp_path / "topo.txt").write_text(of_smi(product, *rows))
    result = run("--from-smi", tmp_path / "topo.txt")
    assert result.exit_code == 0, result.stderr
    notes = [line for line in result.stdout.splitlines() if "NVLinks" in line]
    assert notes == ([f"- {said}: some may be down, which nvidia-smi nvlink -s tells"] if said else [])


def broken(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = document(simulated("dgx2", Faults(), "broken"))
    return {**found, "spec": {**found["spec"], **spec}}


TWO = [document(simulated(profile, Faults(), name)) for name, profile in (("a", "dgx2"), ("b", "gh200"))]
UNREADABLE = broken(gpus=[{"index": -1}])
IMPOSSIBLE = broken(nvlink={"switched": True})
UNREADABLE_WORDS = (
    "this version cannot read the NodeTopology broken: spec.gpus[0].index: Input should be greater than or equal to 0"
)
IMPOSSIBLE_WORDS = (
    "the NodeTopology broken contradicts itself: nvlink.linksPerGPU: is missing; with switched: true it has one entry "
    "for each GPU"
)


def answering(*odd: dict[str, Any]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        listed = [*TWO, *odd]
        name = request.path.rpartition("/")[2]
        if name == "nodetopologies":
            metadata = {"resourceVersion": "1"}
            return web.json_response({"kind": "NodeTopologyList", "metadata": metadata, "items": listed})
        found = {each["metadata"]["name"]: each for each in listed}.get(name)
        if found:
            return web.json_response(found)
        status = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}
        return web.json_response(status, status=404)

    return answer


def asked_of_a_cluster(folder: Path, node: str | None, *odd: dict[str, Any], form: str = "table") -> None:
    async def ask() -> None:
        async with serving(answering(*odd), folder):
            await show(TopologyArguments(node, None, None, Reach(folder / "kubeconfig")), form)

    asyncio.run(ask())


def test_a_node_of_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked_of_a_cluster(tmp_path, "a")
    assert capsys.readouterr().out.startswith(
        "a: 16 Tesla-V100-SXM3-32GB; NVLink 2 through switches, 6 links of 25.781 GB/s"
    )


def test_all_nodes_of_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked_of_a_cluster(tmp_path, None)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["NODE", "a", "b"]


def test_a_machine_that_cannot_be_shown_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = {**IMPOSSIBLE, "metadata": {"name": "odd"}}
    asked_of_a_cluster(tmp_path, None, UNREADABLE, odd)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["NODE", "a", "b"]
    assert lines[3:] == [f"- {UNREADABLE_WORDS}", f"- {IMPOSSIBLE_WORDS.replace('broken', 'odd')}"]


@pytest.mark.parametrize(
    ("node", "form", "odd", "said"),
    [
        pytest.param(
            "c",
            "table",
            UNREADABLE,
            "the cluster has no NodeTopology c: is closeknit installed, and does its agent run on that node?",
            id="no such node",
        ),
        pytest.param("broken", "table", UNREADABLE, UNREADABLE_WORDS, id="one that cannot be read"),
        pytest.param("broken", "table", IMPOSSIBLE, IMPOSSIBLE_WORDS, id="one that contradicts itself"),
        pytest.param(None, "json", UNREADABLE, UNREADABLE_WORDS, id="all, for a program"),
    ],
)
def test_what_a_cluster_does_not_have(
    tmp_path: Path, node: str | None, form: str, odd: dict[str, Any], said: str
) -> None:
    with pytest.raises(NotThere) as refused:
        asked_of_a_cluster(tmp_path, node, odd, form=form)
    assert str(refused.value) == said


@pytest.mark.parametrize("is_there", [True, False])
def test_a_cluster_that_does_not_answer(tmp_path: Path, is_there: bool) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:9") if is_there else tmp_path / "nowhere"
    result = run("--kubeconfig", kubeconfig)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("closeknit: cannot ask the cluster: ")
