"""The whole stack on the GPUs of this machine, measured from end to end; what it finds goes into a folder.

    PYTHONPATH=crds/src:operator/src:node-agent/src:tests python3 -m hardware.course CHART OUT [--pretended]

CHART is what Helm renders of the chart with AGENT_OPTIONS. Each stage has its own time-out, and one that fails does not
keep the next from running, unless that stands on it: minutes of GPUs are at stake. `result.json` is written after every
stage, `table.md` at the end. `--pretended`: a machine without GPUs, on which everything but NCCL is as on one with.
`--leave-out`: for a machine that is to be had for fewer minutes than all takes; the larger pair of nodes comes first.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

from hardware import agent_seen
from hardware.gpus import RealGpu, pretended_gpus, real_gpus
from hardware.launcher import launcher
from hardware.preflights import preflights
from hardware.restarts import restarts
from hardware.site import SHARED, Site
from hardware.stack import Stack
from hardware.table import table
from hardware.trainings import TRAININGS, processes, unheard
from hardware.ways import Run, Ways
from harness.local_cluster import LocalCluster
from harness.node.local_node import LocalNode

WINDOW_S = 4.0
SOCKET_BYTES = str(256 << 20)  # over sockets a gigabyte takes half a second
READY_TIMEOUT_S = 120
REST_S = 30.0
PATHS_S = 85.0  # the agent looks at the counters once a minute
PRETENDED_S = 5.0  # of either, where nothing can be seen of it
SIDES = 2
PAIRS = 2  # a job and Pods by hand in turn: figures over sockets differ from run to run
WIDE_GB_S = 12.5  # 100 Gbit/s: what the course declares of the network between its nodes, which is memory


class Course:
    """The stages, and what they have found."""

    def __init__(self, out: Path, site: Site, folder: Path, left_out: Sequence[str] = ()) -> None:
        self._out, self._site, self._folder = out, site, folder
        self._left_out = left_out
        self._began = time.monotonic()
        self.found: dict[str, Any] = {
            "kernel": platform.release(),
            "python": platform.python_version(),
            "stages": {},
            "runs": [],
            "failures": {},
        }

    def gpus(self, node: str) -> list[RealGpu]:
        """The machine's, of which the simulated one has a set for each node."""
        return pretended_gpus(node, self._folder / "dev") if self._site.pretended else real_gpus()

    def stage(self, name: str, work: Callable[[], object]) -> bool:
        """Does it, unless it is left out, and says how long it took; whether it went well."""
        if name in self._left_out:
            return True
        began = time.monotonic()
        print(f"{began - self._began:6.1f} s  {name}", flush=True)
        try:
            work()
        except Exception as error:
            self.found["failures"][name] = "".join(traceback.format_exception(error))[-12000:]
            print(self.found["failures"][name], file=sys.stderr, flush=True)
        self.found["stages"][name] = round(time.monotonic() - began, 1)
        self.write()
        return name not in self.found["failures"]

    def write(self) -> None:
        """What is known so far."""
        (self._out / "result.json").write_text(json.dumps(self.found, indent=1) + "\n")
        (self._out / "table.md").write_text(table(self.found))

    def keep(self, what: str, *runs: Run) -> None:
        """Takes up what runs have said, and whether they got what was planned."""
        for run in runs:
            faults = misfits(run, pretended=self._site.pretended)
            self.found["runs"].append({"what": what, **asdict(run), "bandwidths": run.bandwidths, "misfits": faults})
            figure = run.bandwidths.get("all-reduce")
            print(
                f"          {what}: {run.way}: all-reduce {figure} GB/s, {run.seconds:.0f} s {faults or ''}", flush=True
            )
            self.write()

    def run(self, chart: Path) -> None:
        """Every stage."""
        with ExitStack() as ends:
            self.stage("launcher", self._launcher)
            self.stage("preflight", self._preflights)
            cluster = ends.enter_context(LocalCluster(with_nodes=True))
            self.stack = Stack(cluster, self._site, chart)
            self.ways = Ways(self.stack, self._site)
            try:
                self._on_one_node()
                self._on_two_nodes()
            finally:
                self.found["operator_log"] = (cluster.directory / "logs" / "operator.log").read_text()[-3000:]

    def _launcher(self) -> None:
        """This machine's torchrun, asked as the tests ask Debian's, which is of 2022."""
        self.found["launcher"] = asked = launcher(self._site.trainer)
        if wrong := [gang for gang in asked["gangs"] if gang["ranks"] != gang["planned"]]:
            raise RuntimeError(f"torchrun gives other ranks than planned: {wrong}")

    def _preflights(self) -> None:
        """The program alone, which a job's Pods run the same: what it says with and without PyTorch."""
        uuids = [gpu.uuid for gpu in self.gpus("node-1")]
        self.found["preflights"] = told = preflights(self._site.trainer, uuids, self._folder)
        print(f"          {told}", flush=True)
        if not self._site.pretended and (faults := [each for each in told if "world" not in each["said"][0]]):
            raise RuntimeError(f"nothing was measured: {faults}")

    def _on_one_node(self) -> None:
        gpus = self.gpus("node-1")
        self.found["gpus"] = [f"{gpu.product}" for gpu in gpus]
        with ExitStack() as ends:
            nodes: list[LocalNode] = []
            if not self.stage("node-1", lambda: nodes.append(ends.enter_context(self.stack.node("node-1", gpus)))):
                return
            topology = self.stack.topology("node-1")
            self.found["topology"] = topology["spec"] if topology else None
            node = self.stack.nodes["node-1"]
            self.stage("agent at rest", lambda: self._agent_at_rest(agent_seen.processes(node.site.cgroup)))
            for count in sizes(len(gpus)):
                self.stage(f"{count} GPUs", lambda count=count: self._all_ways(count))  # type: ignore[misc]
            if len(gpus) >= SIDES:
                self.stage("paths", lambda: self._paths(len(gpus), agent_seen.processes(node.site.cgroup)))
                self.stage("side by side", lambda: self._side_by_side(len(gpus) // 2))
            if len(gpus) >= 2 * SIDES:
                self.stage("choices", lambda: self._choices([gpu.uuid for gpu in gpus]))
            self.stage("restarts on 1 node", lambda: self._restarts("1 node", len(gpus)))
            self.stage("examples", lambda: self._examples(len(gpus)))
            self.stage("device plugin", lambda: self._by_plugin(nodes[0], gpus))

    def _restarts(self, where: str, gpus: int, **spec: Any) -> None:
        """A gang whose ranks die; seconds until it trains again."""
        found = self.found.setdefault("restarts", {})
        found[where] = restarts(self.stack, self._site, self.ways, gpus, **spec)

    def _by_plugin(self, node: LocalNode, gpus: Sequence[RealGpu]) -> None:
        """The whole node, and half of it: what Pods get is the plugin's choice, and has to be what was planned."""
        self.stack.give_by_plugin(node, gpus)
        node.prefer([gpu.uuid for gpu in gpus])  # as NVIDIA's does where all are joined alike
        for count in dict.fromkeys((len(gpus), len(gpus) // 2)):
            if count:
                self.keep(f"{count} GPUs by device plugin", self.ways.job(count))

    def _examples(self, count: int) -> None:
        """The project's examples, with the facts that their ranks print."""
        self.found["examples"] = told = {}
        for name in TRAININGS:
            run = self.ways.example(name, count)
            told[name] = {"lines": run.lines, "verified": run.verified, "seconds": round(run.seconds, 1)}
            print(f"          {name}: {told[name]}", flush=True)
            if wrong := unheard(run.lines, processes(name, count)):
                raise RuntimeError(f"{name}: {wrong}")
            if run.listed != sorted(run.planned):
                raise RuntimeError(f"{name}: nvidia-smi listed {run.listed}, planned were {sorted(run.planned)}")

    def _agent_at_rest(self, pids: Mapping[str, int]) -> None:
        """Before any job: how soon it published, and what it takes."""
        pretended = self._site.pretended
        self.found["agent"] = seen = {
            "first_published_s": self.stack.wait_for(
                lambda: agent_seen.first_published_s(pids["agent"], self.stack.agent_log()), "the agent's word", 10
            ),
            "memory_mb": agent_seen.memory_mb(pids),
            "cpu_percent": agent_seen.cpu_share(pids, PRETENDED_S if pretended else REST_S),
            "discovery_s": {} if pretended else agent_seen.discovery_s(),
        }
        print(f"          agent at rest: {seen}", flush=True)

    def _paths(self, count: int, pids: Mapping[str, int]) -> None:
        """A job that sends for longer than a minute: the agent says by which ways, while it runs."""
        window_s = PRETENDED_S if self._site.pretended else PATHS_S
        start = f"{SHARED}/paths"
        name = self.ways.start_job(count, {"START": start, "WINDOW_S": str(window_s)})
        self.stack.wait_for(lambda: "ready_s" in self.ways.log_of(name), f"{name} to be ready", READY_TIMEOUT_S)
        self._start(start)
        seen = self.found.setdefault("agent", {})
        seen["cpu_percent_with_job"] = agent_seen.cpu_share(pids, window_s - 1.0)
        seen["memory_mb_with_job"] = agent_seen.memory_mb(pids)
        seen["paths"] = agent_seen.paths(self.stack.topology("node-1"))
        print(f"          paths: {seen}", flush=True)
        self.keep("paths", self.ways.end_job(name))
        told = list(seen["paths"].values())
        if len(told) != 1 or (not self._site.pretended and "NVLink" not in told[0]):
            raise RuntimeError(f"the agent said {seen['paths']} of a job that sent over NVLink")

    def _all_ways(self, count: int) -> None:
        """A job first: it chooses the GPUs, and the others take the same."""
        job = self.ways.job(count)
        self.keep(f"{count} GPUs", job)
        self.keep(f"{count} GPUs", self.ways.by_hand([("node-1", job.planned)]))
        self.keep(f"{count} GPUs", self.ways.outside(job.planned))

    def _side_by_side(self, count: int) -> None:
        """Two jobs: each alone, while the other waits, and then both in the same seconds."""
        alone = [f"{SHARED}/alone-{side}" for side in range(SIDES)]
        both = f"{SHARED}/both"
        names = [
            self.ways.start_job(count, {"START": f"{alone[side]} {both}", "WINDOW_S": str(WINDOW_S)})
            for side in range(SIDES)
        ]
        for name in names:
            self.stack.wait_for(
                lambda name=name: "ready_s" in self.ways.log_of(name), f"{name} to be ready", READY_TIMEOUT_S
            )
        for start in (*alone, both):
            self._start(start)
            time.sleep(WINDOW_S + 2.5)
        runs = [self.ways.end_job(name) for name in names]
        self.keep("side by side", *runs)
        if shared := set(runs[0].listed) & set(runs[1].listed):
            raise RuntimeError(f"both jobs saw {sorted(shared)}")

    def _start(self, seen: str) -> None:
        """Names the second in which the window of this file begins."""
        file = self._site.shared / Path(seen).name
        unfinished = file.with_suffix(".new")
        unfinished.write_text(str(time.time() + 1.0))
        unfinished.rename(file)

    def _choices(self, uuids: Sequence[str]) -> None:
        """Four choices of half the GPUs, which on one NVSwitch must not differ."""
        halves = list(combinations(uuids, len(uuids) // 2))
        chosen = [halves[index * (len(halves) - 1) // 3] for index in range(4)]
        for half in chosen:
            self.keep("choices", self.ways.outside(half, {"START": f"{self._started()}", "WINDOW_S": "2"}))

    def _started(self) -> Path:
        """A window that has begun."""
        file = self._site.shared / "begun"
        file.write_text("0")
        return file

    def _on_two_nodes(self) -> None:
        for share in dict.fromkeys((len(self.found.get("gpus", [])) // 2, 1)):
            if 0 < 2 * share <= len(self.found.get("gpus", [])):
                self.stage(f"2 nodes of {share}", lambda share=share: self._pair(share))  # type: ignore[misc]

    def _pair(self, share: int) -> None:
        """Two nodes with so many GPUs each, which have nothing but sockets between them."""
        one, other = f"left-{share}", f"right-{share}"
        shares = {name: self.gpus(name) for name in (one, other)}
        if not self._site.pretended:
            shares = {one: shares[one][:share], other: shares[one][share : 2 * share]}
        with ExitStack() as ends:
            for name, gpus in shares.items():
                ends.enter_context(self.stack.node(name, gpus))
            what, torn = f"2 nodes of {share}", {"gpusPerNode": share, "nvlink": "Ignored"}
            self.stage(f"restarts on {what}", lambda: self._restarts(what, 2 * share, topology=torn))
            self.stage(f"bandwidth of {what}", lambda: self._sockets(share, shares))

    def _sockets(self, share: int, shares: Mapping[str, Sequence[RealGpu]]) -> None:
        """What two nodes reach, and what the network's declared speed and the order of ranks change."""
        what, small = f"2 nodes of {share}", {"BYTES": SOCKET_BYTES}
        torn = {"gpusPerNode": share, "nvlink": "Ignored"}
        at = {gpu.uuid: name for name, gpus in shares.items() for gpu in gpus}
        for _ in range(PAIRS):
            job = self.ways.job(2 * share, small, topology=torn)
            self.keep(what, job)
            halves = (job.planned[:share], job.planned[share:])
            nodes = [(at[half[0]], half) for half in halves]
            self.keep(what, self.ways.by_hand(nodes, small))
        with self.stack.network_declared(WIDE_GB_S):
            self.keep(what, _renamed(self.ways.job(2 * share, small, topology=torn), "TrainingJob, network declared"))
        if share > 1:
            shuffled = {**small, "SHUFFLED": "1"}
            self.keep(what, _renamed(self.ways.by_hand(nodes, shuffled), "Pod by hand, ranks shuffled"))


def _renamed(run: Run, way: str) -> Run:
    run.way = way
    return run


def sizes(gpus: int) -> list[int]:
    """How many GPUs a job is given, from two on: powers of two, and all."""
    found = [1 << power for power in range(1, 8) if 1 << power <= gpus]
    return found if not found or found[-1] == gpus else [*found, gpus]


def misfits(run: Run, *, pretended: bool) -> list[str]:
    """What a run saw and was not planned."""
    found = []
    if run.way != "outside" and run.listed != sorted(run.planned):
        found.append(f"nvidia-smi listed {run.listed}, planned were {sorted(run.planned)}")
    if len(run.ranks) != len(run.planned):
        found.append(f"{len(run.ranks)} ranks, planned were {len(run.planned)}")
    if not pretended and "shuffled" not in run.way:
        seen = [rank["uuid"] for rank in run.ranks]
        if seen != run.planned:
            found.append(f"the ranks' GPUs were {seen}, planned were {run.planned}")
    if run.way != "outside" and any(rank["uid"] != 1000 for rank in run.ranks):
        found.append("a rank ran as another user than 1000")
    return found


def main() -> int:
    """Runs the course; 1 where a stage failed."""
    parser = argparse.ArgumentParser(description="The whole stack on real GPUs")
    parser.add_argument("chart", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pretended", action="store_true")
    parser.add_argument("--leave-out", nargs="+", default=(), metavar="STAGE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="closeknit-hardware-") as folder:
        site = Site.here(Path(folder), pretended=options.pretended)
        course = Course(options.out, site, Path(folder), options.leave_out)
        course.stage("all", lambda: course.run(options.chart))
    return 1 if course.found["failures"] or any(run["misfits"] for run in course.found["runs"]) else 0


if __name__ == "__main__":
    sys.exit(main())
