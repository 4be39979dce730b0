"""The agent of a machine at rest: what its processes take, how soon it spoke, and what each call of NVML costs.

    PYTHONPATH=crds/src:operator/src:node-agent/src:tests python3 -m hardware.rest OUT [--pretended DUMP]

As in the chart: every process compiled before, /metrics served, the kubelet asked (where there is none, its client is
there all the same). `--pretended` has a recorded machine stand below NVIDIA's binding, on a machine without GPUs.
"""

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from closeknit.agent.discovery.readings.dump import decode
from closeknit.agent.discovery.topology import discover
from closeknit.agent.main import READING_S
from closeknit.agent.nvml import nvml_client
from closeknit.agent.nvml.nvml_messages import AskEvents, AskGpu, AskLive, AskPairs, AskPulse, AskSent
from closeknit.agent.nvml.nvml_session import NvmlSession
from closeknit.agent.sources.hardware import HardwareSource
from hardware.agent_seen import cpu_s, first_published_s, memory_mb
from harness.kubectl import token_of
from harness.local_cluster import LocalCluster

ROOT = Path(__file__).parents[2]
REST_S, SETTLED_S = 60.0, 15.0
PORT = 18099  # of /metrics, on this machine alone
PUBLISHED_WITHIN_S = 60.0
ROUNDS = 4


def children(pid: int) -> list[int]:
    """The processes that this one has started, those of theirs among them."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
    own = [each for each, parent in parents.items() if parent == pid]
    return [*own, *(each for child in own for each in children(child))]


class Rest:
    """What was found, written to `result.json` after each stage: a lease may end at any time."""

    def __init__(self, out: Path, dump: Path | None) -> None:
        self._out = out
        self._dump = dump
        self._found: dict[str, Any] = {}
        self._began = time.monotonic()

    def walk(self) -> None:
        """Every stage; one that fails is told, and the next one begins."""
        for stage in (self._discovered, self._called, self._rested):
            try:
                stage()
            except Exception as error:  # the other stages are wanted all the same
                self._say(f"{stage.__name__} failed", repr(error))

    def _say(self, name: str, value: object) -> None:
        self._found[name] = value
        print(f"{time.monotonic() - self._began:6.1f} {name}: {json.dumps(value)}", flush=True)
        (self._out / "result.json").write_text(json.dumps(self._found, indent=1))

    def _discovered(self) -> None:
        """The machine read and understood: with the driver opened by a new process, and again."""
        source = HardwareSource(Path("/"), nvml_client.NvmlClient(_worker(self._dump)))
        for name in ("first_s", "again_s"):
            began = time.perf_counter()
            found = discover(source.read(), source.method)
            self._say(f"discovery {name}", round(time.perf_counter() - began, 3))
        self._say("GPUs", [gpu.product for gpu in found.spec.gpus])

    def _called(self) -> None:
        """Each call of the library: how often, and its milliseconds of wall, all and longest, of rounds 2 s apart."""
        taken: dict[str, list[float]] = defaultdict(list)
        for name in dir(pynvml):
            function = getattr(pynvml, name)
            if name.startswith("nvml") and callable(function) and not isinstance(function, type):
                setattr(pynvml, name, _timed(function, taken[name]))
        if self._dump is not None:
            from harness.nvml_library import NvmlLibrary  # noqa: PLC0415 -- not where there are GPUs

            setattr(pynvml, "nvmlLib", NvmlLibrary(decode(self._dump.read_bytes())))  # noqa: B010
        session = NvmlSession()
        survey = session.survey()
        for each in range(ROUNDS):
            for index in range(survey.gpus):
                read = session.answer(AskGpu(index))
                links = tuple(link.link for link in getattr(read, "links", ()) if link.p2p)
                session.answer(AskPairs(index, tuple(range(index + 1, survey.gpus))))
                session.answer(AskPulse(index, links, counts=each == 0))
                session.answer(AskLive(index))
                session.answer(AskSent(index))
            session.answer(AskEvents())
            time.sleep(0 if self._dump else 2.0)
        session.close()
        table = {
            name: {"calls": len(times), "ms": round(1e3 * sum(times), 3), "longest_ms": round(1e3 * max(times), 3)}
            for name, times in taken.items()
            if times
        }
        self._say("calls", dict(sorted(table.items(), key=lambda item: -item[1]["ms"])))

    def _rested(self) -> None:
        """The agent beside an API server: its first word, memory, and processor for a minute."""
        with LocalCluster() as cluster:
            cluster.kubectl("apply", "--server-side", f"--filename={ROOT / 'crds'}")
            cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"--filename={ROOT / 'crds'}")
            cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
            login = _login(cluster, self._out / "login")
            options = ["--node=node-1", f"--metrics-address=127.0.0.1:{PORT}"]
            options += [f"--pod-resources={self._out}/no-kubelet.sock", f"--interval={READING_S}"]
            program = [sys.executable, "-c", AS_IN_A_POD, str(self._out / "login"), json.dumps(_worker(self._dump))]
            log = self._out / "agent.log"
            with log.open("wb") as written:
                agent = subprocess.Popen([*program, *options], stdout=written, stderr=written, env=login)
            try:
                self._say("published_s", _soon(lambda: first_published_s(agent.pid, log.read_text())))
                pids = {"agent": agent.pid} | {f"worker {pid}": pid for pid in children(agent.pid)}
                self._say("cpu_s until then", round(cpu_s(pids), 2))
                time.sleep(SETTLED_S)
                self._say("memory_mb", memory_mb(pids))
                before, began = cpu_s(pids), time.monotonic()
                time.sleep(REST_S)
                self._say("cpu_percent", round(100 * (cpu_s(pids) - before) / (time.monotonic() - began), 3))
                memory = memory_mb(pids)
                self._say("memory_mb after a minute", memory)
                # What is shared is in the first already: the interpreter, C's library.
                own = sum(each["own"] for name, each in memory.items() if name != "agent")
                self._say("memory_mb of all", round(memory["agent"]["resident"] + own, 1))
            finally:
                agent.terminate()
                agent.wait(10)


# The agent itself, logged in as in a Pod; its first two arguments are the folder of its login, and who asks NVML.
AS_IN_A_POD = """
import json, sys
from pathlib import Path
from closeknit.agent.nvml.nvml_client import NvmlClient
from closeknit.kube.login.pod_login import PodLogin
PodLogin.__init__.__defaults__ = (Path(sys.argv.pop(1)),)
NvmlClient.__init__.__defaults__ = (json.loads(sys.argv.pop(1)),)
from closeknit.agent.main import main
main()
"""


def _login(cluster: LocalCluster, folder: Path) -> dict[str, str]:
    """The files that the kubelet mounts, of an account that may do everything, and the agent's environment."""
    cluster.wait_for_default_account("default")
    options = ("agent-at-rest", "--clusterrole=cluster-admin", "--serviceaccount=default:default")
    cluster.kubectl("create", "clusterrolebinding", *options)
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text(token_of(cluster.service_account_kubeconfig("default", "default")))
    shutil.copy(cluster.directory / "ca.crt", folder / "ca.crt")
    host, _, port = cluster.server.removeprefix("https://").rpartition(":")
    return {**os.environ, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


def _worker(dump: Path | None) -> tuple[str, ...]:
    return nvml_client.WORKER if dump is None else (sys.executable, "-m", "harness.nvml_driver", str(dump))


def _timed(function: Callable[..., Any], taken: list[float]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            taken.append(time.perf_counter() - began)

    return timed


def _soon(found: Callable[[], float | None]) -> float | None:
    until = time.monotonic() + PUBLISHED_WITHIN_S
    while (value := found()) is None and time.monotonic() < until:
        time.sleep(0.1)
    return value


def main() -> None:
    """Walks, and leaves its results in OUT."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pretended", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    Rest(options.out.absolute(), options.pretended).walk()


if __name__ == "__main__":
    main()
