"""A real node as a test tool: kubelet, containerd and runc as plain processes, in namespaces of their own.

    with LocalCluster(with_nodes=True) as cluster, LocalNode(cluster, "node-1", 1) as node:
        node.offer_gpus(pretended("node-1", "hgx-h200"))

Needs root and what `harness.node.projects` asks for. What is in it: tests/node/README.md.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from closeknit.api.names import GPU_DRA_DRIVER, GPU_RESOURCE
from harness.local_cluster import ClusterError, LocalCluster, ask
from harness.node import programs
from harness.node.image import write_inmate_image
from harness.node.numa import write_numa
from harness.node.projects import node_programs
from harness.node.site import Site
from harness.supervisor import remove

INSIDE = Path(__file__).parent / "inside.py"
READY_TIMEOUT_S = 60  # it takes 5 s; a loaded machine may take ten times that


class LocalNode:
    """One node of a LocalCluster. Ready when entered; gone, with all its containers and its Node, when left."""

    folder: Path  # logs/, reports/; the node's /var/lib is var/lib here
    site: Site

    def __init__(
        self,
        cluster: LocalCluster,
        name: str,
        number: int,
        *,
        host_folders: Mapping[str, Path] | None = None,
        default_runtime: str | None = None,
    ) -> None:
        """`number` tells the nodes of a cluster apart, from 1; `host_folders` as harness.node.host_python has. A Pod
        that names no RuntimeClass sees them, too, unless `default_runtime` is another."""
        self._cluster = cluster
        self._host_folders = host_folders or {}
        self._default_runtime = default_runtime or (programs.HOST_RUNTIME if host_folders else programs.PLAIN_RUNTIME)
        cgroup = f"{cluster.directory.name}-{name}"
        self.site = Site(name, number, cluster.switch, cgroup)
        self.folder = cluster.directory.with_name(cgroup)
        self._pids: dict[str, int] = {}
        self._resources: dict[str, str] = {}
        self._drivers: dict[str, list[str]] = {}
        self._has_numa = False

    def __enter__(self) -> Self:
        self._programs = node_programs()
        with ExitStack() as stack:
            for inner in ("logs", programs.POD_LOGS, programs.REPORTS, "var/lib", "var/log", "cdi"):
                (self.folder / inner).mkdir(parents=True)
            stack.callback(remove, self.folder)  # for when its supervisor was killed, else it has done it
            programs.write_files(
                self.folder,
                self.site,
                self._cluster.authority,
                self._programs,
                self._host_folders,
                self._default_runtime,
            )
            command = [sys.executable, "-I", "-S", str(INSIDE), str(self.folder), json.dumps(asdict(self.site))]
            self._inside = stack.enter_context(_inside(command))
            self._start_node()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
        self._cluster.kubectl("delete", "node", self.site.name, "--ignore-not-found", "--wait=false")

    @property
    def reports(self) -> Path:
        """What its containers see as /reports where they see folders of the machine; they may write there."""
        return self.folder / programs.REPORTS

    @property
    def pod_resources(self) -> Path:
        """The kubelet's socket for who asks which Pod holds what, as a path of this machine."""
        return self.folder / "var" / "lib" / "kubelet" / "pod-resources" / "kubelet.sock"

    def start_program(self, name: str, *command: str) -> int:
        """Runs a program on the node, which ends with it; its process id there. Its output is in `logs/<name>.log`."""
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder)}
        pid = int(ask(self._inside, {"name": name, "argv": command, "environment": environment})["pid"])
        self._pids[name] = pid
        return pid

    def run_program(self, name: str, *command: str) -> str:
        """Runs a program on the node to its end; what it has said. Raises ClusterError."""
        log = self.folder / "logs" / f"{name}.log"
        before = log.stat().st_size if log.exists() else 0  # programs of one name share a log
        pid = self.start_program(name, *command)
        if ask(self._inside, {"wait": pid})["status"] != 0:
            raise ClusterError(f"{' '.join(command[:3])} failed\n{self._log_tails()}")
        return log.read_bytes()[before:].decode()

    def stop_program(self, name: str) -> None:
        """Ends a program by SIGTERM, and by SIGKILL after a while."""
        ask(self._inside, {"stop": self._pids.pop(name)})

    def start_kubelet(self) -> None:
        """Starts the kubelet, and waits until the node is Ready."""
        self.start_program("kubelet", *programs.kubelet(self.folder, self.site, self._programs))
        self._wait_for(self._is_ready, f"node {self.site.name} to be Ready")

    def reboot(self) -> None:
        """What a boot of the machine looks like to what is there after it: every container has died without a word, and
        container runtime, kubelet and drivers of claims start on what they had written down. Others run on."""
        for name in ("kubelet", "containerd", *self._drivers):
            self.stop_program(name)
        self.run_program("halt", *programs.halt())
        self._boot()

    def die(self) -> None:
        """What a machine looks like that has lost its power: kubelet, container runtime, drivers and all containers are
        killed, and no connection of theirs is ended."""
        self.unplug()
        self.signal(signal.SIGKILL, "kubelet", "containerd", *self._drivers)
        self.run_program("halt", *programs.halt())

    def revive(self) -> None:
        """It is booted, on what it had written down."""
        self.plug_in()
        self._boot()

    def unplug(self) -> None:
        """Cuts it off from all others; what runs there goes on."""
        self._set_cable("down")

    def plug_in(self) -> None:
        """It is connected again."""
        self._set_cable("up")

    def signal(self, how: signal.Signals, *names: str) -> None:
        """Sends programs a signal, all at once."""
        pids = [str(self._pids[name]) for name in names]
        self.run_program("signal", "kill", f"-{how.value}", *pids)

    def _boot(self) -> None:
        self._start_containerd()
        self.start_kubelet()
        for name, command in self._drivers.items():
            self.start_program(name, *command)

    def _set_cable(self, state: str) -> None:
        """At the switch: the node keeps its routes."""
        command = ["nsenter", f"--net={self.site.switch}", "ip", "link", "set", self.site.name, state]
        subprocess.run(command, check=True)

    def change_kubelet(self, *, has_numa: bool = False, **changes: Any) -> None:
        """Starts the kubelet again with these fields of its configuration; with none, as it was. What its managers of
        CPUs and memory have written down goes, as it must with a policy: its Pods keep what they have. `has_numa`: it
        sees two NUMA nodes, as harness.node.numa has them."""
        self.stop_program("kubelet")
        if has_numa != self._has_numa:
            self._has_numa = has_numa
            self.run_program("numa", *programs.numa(write_numa(self.folder) if has_numa else None))
        programs.configure_kubelet(self.folder, self.site, changes)
        for manager in ("cpu", "memory"):
            (self.folder / "var" / "lib" / "kubelet" / f"{manager}_manager_state").unlink(missing_ok=True)
        self.start_kubelet()

    def offer_gpus(self, machine: Mapping[str, Any], name: str = "gpus") -> None:
        """Starts the device plugin for these GPUs (harness.node.gpus), and waits until the node has so many. Devices of
        another resource have another `name`."""
        resource = machine.get("resource", GPU_RESOURCE)
        self.start_program(name, *programs.device_plugin(self.folder, self._told(machine, name), self._programs))
        self._resources[name] = resource
        self._wait_for_gpus(resource, len(machine["gpus"]))

    def prefer(self, uuids: Sequence[str]) -> None:
        """Has the device plugins choose these first from now on; without it the kubelet takes any."""
        (self.folder / "preferred").write_text("\n".join(uuids))

    def withdraw_gpus(self, name: str = "gpus") -> None:
        """Ends the device plugin, and waits until the node offers nothing."""
        self.stop_program(name)
        self._wait_for_gpus(self._resources.pop(name), 0)

    def offer_claims(self, machine: Mapping[str, Any], name: str = "gpus") -> None:
        """Starts the DRA driver for these GPUs, and waits until its ResourceSlice is there. That of another kind of
        device has another `name`."""
        driver = machine.get("driver", GPU_DRA_DRIVER)
        told = self._told(machine, name)
        self._drivers[name] = programs.dra_driver(self.folder, told, self.site, self._programs)
        self.start_program(name, *self._drivers[name])
        self._resources[name] = driver
        self._wait_for(lambda: bool(self._slices(driver)), f"the ResourceSlice of {driver} on {self.site.name}")

    def withdraw_claims(self, name: str = "gpus") -> None:
        """Ends the DRA driver; its slices go at once, where the kubelet would wait half a minute for its return."""
        self.stop_program(name)
        del self._drivers[name]
        if slices := self._slices(
            self._resources.pop(name)
        ):  # a kubelet that has just started has none, or removes them
            self._cluster.kubectl("delete", "--ignore-not-found", "resourceslices", *slices)

    def _told(self, machine: Mapping[str, Any], name: str) -> Path:
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(machine))
        return file

    def _slices(self, driver: str) -> list[str]:
        specs = {each["metadata"]["name"]: each["spec"] for each in self._cluster.get("resourceslices")["items"]}
        return [
            name for name, spec in specs.items() if (spec["driver"], spec.get("nodeName")) == (driver, self.site.name)
        ]

    def _wait_for_gpus(self, resource: str, count: int) -> None:
        self._wait_for(
            lambda: self._status().get("allocatable", {}).get(resource, "0") == str(count),
            f"node {self.site.name} to offer {count} of {resource}",
        )

    def import_image(self, archive: Path) -> None:
        """Gives the node an image."""
        self.run_program("import", *programs.import_image(archive, self._programs))

    def _start_node(self) -> None:
        assert self._inside.stdout is not None  # it is PIPE
        if not self._inside.stdout.readline():
            raise ClusterError(f"node {self.site.name} did not start; its words are above")
        image = self.folder / "inmate.tar"
        write_inmate_image(image, self._programs["inmate"])
        self._start_containerd()
        self.import_image(image)
        self.start_kubelet()

    def _start_containerd(self) -> None:
        log, booted = self.folder / "logs" / "containerd.log", "containerd successfully booted"
        before = log.read_text().count(booted) if log.exists() else 0
        self.start_program("containerd", *programs.containerd(self.folder, self._programs))
        self._wait_for(lambda: log.read_text().count(booted) > before, "containerd to be up")

    def _is_ready(self) -> bool:
        conditions = self._status().get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _status(self) -> dict[str, Any]:
        nodes = {node["metadata"]["name"]: node for node in self._cluster.get("nodes")["items"]}
        status: dict[str, Any] = nodes.get(self.site.name, {}).get("status", {})
        return status

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        try:
            self._cluster.wait_for(condition, what, READY_TIMEOUT_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self._log_tails()}") from None

    def _log_tails(self, lines: int = 12) -> str:
        tails = []
        for log in sorted((self.folder / "logs").glob("*.log")):
            tail = log.read_text(errors="replace").splitlines()[-lines:]
            tails += [f"the end of {log}:", *(f"  {line[:400]}" for line in tail)]
        return "\n".join(tails)


def _inside(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
