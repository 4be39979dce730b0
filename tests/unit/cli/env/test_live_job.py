"""What GPUs do at the moment, through an API server's proxy in front of a real agent's /metrics."""

import asyncio
import io
import os
import pty
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rich.console import Console

from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Method
from closeknit.api.objects import NodeTopology
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.topology.command import TopologyArguments, show
from closeknit.cli.topology.gpu_activity import GpuActivity, moments
from closeknit.cli.topology.machine_sheet import sheet
from closeknit.cli.topology.machine_table import on_screen
from closeknit.runtime.proxied_caller import PROXIED
from faults.http_server import serving

METRICS = """# HELP closeknit_gpu_power_watts power that the GPU draws
closeknit_gpu_utilization_ratio{gpu="0",uuid="GPU-a"} 0.97
closeknit_gpu_memory_used_bytes{gpu="0",uuid="GPU-a"} 5.36870912e+09
closeknit_gpu_temperature_celsius{gpu="0",uuid="GPU-a"} 54.0
closeknit_gpu_power_watts{gpu="0",uuid="GPU-a"} 412.5
closeknit_gpu_temperature_celsius{gpu="1",uuid=""} 31.0
"""
SPEC = discover(readings_of(load_profile("pcie-8"), "gpu-01"), Method.SIMULATED).spec
NODE = NodeTopology.parse({"metadata": {"name": "gpu-01"}, "spec": SPEC.wire(), "status": {}})


@dataclass
class Cluster:
    """An API server with one node and its agent, as far as anybody looks."""

    has_agent: bool = True
    has_account: bool = True
    good: set[str] = field(default_factory=lambda: {"reader-1"})
    tokens: int = 0
    looks: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        """Nobody but an agent reads a header that the API server has not used itself."""
        path = request.path
        if path.endswith("/nodetopologies/gpu-01"):
            return web.json_response({"metadata": {"name": "gpu-01"}, "spec": SPEC.wire(), "status": {}})
        if path == "/api/v1/pods":
            assert request.query["fieldSelector"] == "spec.nodeName=gpu-01,status.phase=Running"
            assert "component=agent" in request.query["labelSelector"]
            ports = [{"containerPort": 9}, {"containerPort": 8080, "name": "http"}]
            pod = {"metadata": {"namespace": "ck", "name": "agent-x"}, "spec": {"containers": [{}, {"ports": ports}]}}
            pods = [pod] if self.has_agent else []
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": pods})
        if path == "/api/v1/namespaces/ck/serviceaccounts/closeknit-live/token":
            self.tokens += 1
            if not self.has_account:
                status = {"kind": "Status", "reason": "NotFound", "code": 404, "message": "no such account"}
                return web.json_response(status, status=404)
            assert (await request.json())["spec"] == {"expirationSeconds": 600}
            return web.json_response({"status": {"token": f"reader-{self.tokens}"}}, status=201)
        assert path == "/api/v1/namespaces/ck/pods/https:agent-x:8080/proxy/metrics"
        assert request.headers["Authorization"] == "Bearer secret"  # the caller's, which goes no further
        self.looks += 1
        is_good = request.headers.get(PROXIED, "").removeprefix("Bearer ") in self.good
        return web.Response(text=METRICS if is_good else "", status=200 if is_good else 401)


def look(cluster: Cluster, folder: Path, form: str = "table", **asked: Any) -> None:
    async def main() -> None:
        async with serving(cluster.answer, folder):
            await show(TopologyArguments("gpu-01", None, None, Reach(folder / "kubeconfig"), live=True, **asked), form)

    asyncio.run(main())


def test_the_values_stand_beside_the_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    look(Cluster(), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[-6:] == ["NUMA", "BUSY", "MEMORY", "HEAT", "POWER", "STATE"]
    assert lines[2].split()[-8:] == ["0", "97%", "5", "GiB", "54", "°C", "412", "W"]
    assert lines[3].split()[-5:] == ["-", "-", "31", "°C", "-"]
    assert lines[4].split()[-4:] == ["-", "-", "-", "-"]


def test_a_token_that_has_ended_is_exchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(good={"reader-2"})
    look(cluster, tmp_path)
    assert (cluster.tokens, cluster.looks) == (2, 2)
    assert "97%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (Cluster(has_agent=False), "no agent runs on node gpu-01"),
        (Cluster(has_account=False), "kubectl create serviceaccount closeknit-live -n ck"),
        (Cluster(good=set()), "the agent takes no token of closeknit-live"),
    ],
)
def test_why_there_is_nothing_to_see(cluster: Cluster, words: str, tmp_path: Path) -> None:
    with pytest.raises(NotThere, match=words):
        look(cluster, tmp_path)
    assert cluster.tokens <= 2


@pytest.mark.parametrize("form", ["json", "svg"])
def test_it_is_a_table_of_one_node(form: str, tmp_path: Path) -> None:
    with pytest.raises(NotThere, match="shows one node of the cluster as a table"):
        look(Cluster(), tmp_path, form)


def test_on_a_terminal_it_is_refreshed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    monkeypatch.setattr("closeknit.cli.topology.watching.EVERY_S", 0.01)
    cluster = Cluster()

    async def main() -> None:
        async with serving(cluster.answer, tmp_path):
            watching = asyncio.create_task(
                show(TopologyArguments("gpu-01", None, None, Reach(tmp_path / "kubeconfig"), live=True), "table")
            )
            while cluster.looks < 3 and not watching.done():
                await asyncio.sleep(0.01)
                await asyncio.to_thread(os.read, master, 1 << 16)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        asyncio.run(main())
    os.close(master)
    assert cluster.looks >= 3 and cluster.tokens == 1


@pytest.mark.parametrize(
    "line",
    ["", "x" * 9999, 'closeknit_gpu_power_watts{gpu="0"} 1', 'closeknit_gpu_power_watts{gpu="0",uuid="a"} 1.2.3',
     'closeknit_gpu_other{gpu="0",uuid="a"} 1', 'closeknit_gpu_power_watts{gpu="x",uuid="a"} 1'],
)  # fmt: skip
def test_a_line_that_says_nothing_of_a_gpu(line: str) -> None:
    assert moments(line).get(0, GpuActivity()) == GpuActivity()


@pytest.mark.parametrize(("width", "height", "is_whole"), [(80, 24, False), (200, 12, False), (200, 50, True)])
def test_on_a_small_screen_no_word_is_cut_off(width: int, height: int, is_whole: bool) -> None:
    console = Console(width=width, height=height, file=io.StringIO())
    with console.capture() as shown:
        console.print(on_screen(sheet(NODE), moments(METRICS), console))
    text = shown.get()
    assert "…" not in text and text.count("\n") <= height
    assert ("GPU7" in text.splitlines()[1]) is is_whole  # the matrix's heading
    first = next(line.split() for line in text.splitlines() if line.startswith("GPU0"))
    assert first[-7:] == ["97%", "5", "GiB", "54", "°C", "412", "W"]


def test_an_object_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = {**SPEC.wire(), "gpus": "eight"}
    monkeypatch.setattr(type(SPEC), "wire", lambda _: wire)
    with pytest.raises(NotThere, match=r"cannot read the NodeTopology gpu-01: spec\.gpus: "):
        look(Cluster(), tmp_path)
