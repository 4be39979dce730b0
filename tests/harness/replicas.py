"""Two operators that elect a leader, on one control plane: what happens to the leader, and what both have written."""

import os
import signal
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from prometheus_client.parser import text_string_to_metric_families

from closeknit.controller.leader.leadership import LEASE_NAME
from harness.audit import AuditEvent
from harness.chart import NAMESPACE
from harness.install import free_port, is_ready, start_operator
from harness.local_cluster import is_running
from harness.operator_bed import DRA_NODES, PLUGIN_NODES, Bed, standing

# As the chart has it.
OPTIONS = ("--leader-elect", f"--leader-elect-namespace={NAMESPACE}")


@dataclass
class Replicas(Bed):
    """A control plane with as many operators as the chart has by default."""

    options: ClassVar[tuple[str, ...]] = OPTIONS
    others: dict[int, int] = field(default_factory=dict)
    """Process id of each, by its port."""

    def revive(self) -> None:
        """Replaces those that do not answer: a test that failed has left them ended or stopped."""
        for port in [port for port in self.others if not is_ready(port)]:
            with suppress(ProcessLookupError):
                os.kill(self.others[port], signal.SIGKILL)
            self.replace(port)

    def start(self, port: int) -> None:
        """One more, which is ready then."""
        self.others[port] = start_operator(self.cluster, port, *self.options)

    def leads(self, port: int) -> bool:
        """Whether the operator there says that it leads. One that is stopped, or gone, says nothing."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1) as answer:
                families = text_string_to_metric_families(answer.read().decode())
        except OSError:
            return False
        return any(
            sample.value == 1
            for family in families
            for sample in family.samples
            if sample.name == "closeknit_leader_status"
        )

    def leader(self) -> int:
        """The port of the one that leads, waited for."""

        def found() -> int | None:
            leading = [port for port in self.others if self.leads(port)]
            assert len(leading) < 2, "two lead"
            return leading[0] if leading else None

        return self.cluster.wait_for(found, "an operator to lead", 40)

    def hurt_leader(self, how: signal.Signals) -> tuple[int, int]:
        """Sends the leader a signal. Its port and process id."""
        port = self.leader()
        os.kill(self.others[port], how)
        return port, self.others[port]

    def replace(self, port: int) -> None:
        """Waits for the end of the operator there, and starts the next one as the kubelet would."""
        self.cluster.wait_for(lambda: not is_running(self.others[port]), "the operator to end", 40)
        self.start(port)

    def lease(self) -> dict[str, Any]:
        """The spec of the Lease."""
        spec: dict[str, Any] = self.cluster.get("leases.coordination.k8s.io", LEASE_NAME, NAMESPACE)["spec"]
        return spec

    def takeover_s(self, port: int, how: signal.Signals, job: str) -> float:
        """Seconds from a signal to the leader, there, until its successor has written what a job waits for, which is
        submitted with the signal. The one that ended is replaced then."""
        began = time.monotonic()
        os.kill(self.others[port], how)
        self.submit(job, gpus=8 * 1000)
        self.cluster.wait_for(lambda: self.job(job)["status"].get("pending") is not None, f"a word to {job}", 60)
        took_s = time.monotonic() - began
        self.delete("trainingjob", job)
        self.replace(port)
        return took_s


@contextmanager
def replicas() -> Iterator[Replicas]:
    """Two operators on four nodes, two of each binding."""
    with standing(Replicas, PLUGIN_NODES, DRA_NODES) as bed:
        bed.others[bed.port] = bed.pid
        bed.start(free_port())
        yield bed


def complaints(writes: list[AuditEvent], jobs: list[dict[str, Any]], pods: list[dict[str, Any]]) -> list[str]:
    """What is wrong with all that was written in a namespace, in etcd's order, and with what is left of it."""
    return [*_twice(writes), *_bookings(writes), *_gangs(jobs, pods)]


def _twice(writes: list[AuditEvent]) -> Iterator[str]:
    """Children that were made twice. A name that is taken is refused, and no create."""
    made = Counter(
        (event.resource, event.name)
        for event in writes
        if event.verb == "create" and event.code == 201 and event.resource in {"pods", "services", "resourceclaims"}
    )
    yield from (f"{resource} {name} was made {count} times" for (resource, name), count in made.items() if count > 1)


def _bookings(writes: list[AuditEvent]) -> Iterator[str]:
    """GPUs that two jobs have booked at one time, and bookings with an epoch below one before."""
    held: dict[str, set[tuple[str, str]]] = {}
    newest = 0
    for event in writes:
        if (event.resource, event.subresource, event.code) != ("trainingjobs", "status", 200):
            continue
        status = event.body["status"]
        before = held.pop(event.name, set())
        is_over = {"Succeeded", "Failed"} & {
            each["type"] for each in status.get("conditions", ()) if each["status"] == "True"
        }
        nodes = [] if is_over else (status.get("placement") or {}).get("nodes", [])
        gpus = {(node["name"], gpu) for node in nodes for gpu in node["gpus"]}
        for other, theirs in held.items():
            if gpus & theirs:
                yield f"{event.name} and {other} have booked the same GPUs: {sorted(gpus & theirs)[:2]}"
        if gpus:
            held[event.name] = gpus
        if gpus and gpus != before:
            if status["epoch"] < newest:
                yield f"{event.name} was booked with epoch {status['epoch']} after {newest}"
            newest = max(newest, status["epoch"])


def _gangs(jobs: list[dict[str, Any]], pods: list[dict[str, Any]]) -> Iterator[str]:
    """Gangs that are not whole, and Pods of no current attempt."""
    for job in jobs:
        name, status = job["metadata"]["name"], job.get("status", {})
        nodes = (status.get("placement") or {}).get("nodes", [])
        live = [
            each["metadata"]["name"]
            for each in pods
            if each["metadata"]["labels"]["closeknit.dev/job"] == name
            and each["status"].get("phase") not in {"Succeeded", "Failed"}
        ]
        wanted = [f"{name}-a{status.get('attempt')}-worker-{index:05}" for index in range(len(nodes))]
        if sorted(live) != wanted:
            yield f"{name} has the Pods {live} and not {wanted}"
