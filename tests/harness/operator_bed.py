"""The operator as its own process, with the chart's rights, on a control plane with four nodes, two of each binding."""

import os
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.audit import AuditEvent
from harness.chart import NAMESPACE
from harness.install import OPERATOR, free_port, install, start_agents, start_operator
from harness.local_cluster import LocalCluster, is_running
from harness.machines import device_class, node_object, resource_slices

USER = f"system:serviceaccount:{NAMESPACE}:{OPERATOR}"
# Two nodes whose GPUs a device plugin binds, and two whose GPUs claims bind.
PLUGIN_NODES = ("gpu-1", "gpu-2")
DRA_NODES = ("gpu-3", "gpu-4")
ON_PLUGIN_PROFILE, ON_DRA_PROFILE = "hgx-h200", "dgx1-v100"
ON_PLUGIN: dict[str, Any] = {"gpus": 16, "gpu": {"products": ["NVIDIA-H200"]}}
ON_DRA: dict[str, Any] = {"gpus": 16, "gpu": {"binding": "DRA"}}
BOTH = pytest.mark.parametrize(
    ("spec", "nodes"), [pytest.param(ON_PLUGIN, PLUGIN_NODES, id="plugin"), pytest.param(ON_DRA, DRA_NODES, id="DRA")]
)


@dataclass
class Bed:
    """A control plane with some nodes of each binding, their agents, and one operator."""

    options: ClassVar[tuple[str, ...]] = ()
    """Of the operator's command line."""
    chart: ClassVar[tuple[str, ...]] = ("--set=kueue.enabled=true",)
    """Options of its rendering."""
    cluster: LocalCluster
    port: int
    pid: int = 0
    namespace: str = ""
    unread: int = 0
    """Where the operator's log stood when the story began."""

    def begin(self, namespace: str, **labels: str) -> None:
        """A story in a namespace of its own, in which Pods can be created at once. An operator runs, even where the
        story before has failed while none did."""
        self.revive()
        self.namespace = namespace
        metadata = {"name": namespace, "labels": labels}
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self.cluster.wait_for_default_account(namespace)
        self.unread = self._log.stat().st_size if self._log.exists() else 0

    def revive(self) -> None:
        """Starts an operator where none runs."""
        if not is_running(self.pid):
            self.pid = start_operator(self.cluster, self.port, *self.options)

    def said(self) -> str:
        """What the operator has logged in this story."""
        return self._log.read_bytes()[self.unread :].decode()

    @property
    def _log(self) -> Path:
        return self.cluster.directory / "logs" / "operator.log"

    def submit(self, name: str = "train", **spec: Any) -> None:
        container = {"name": "trainer", "image": "registry.example/train:1"}
        job = {
            "apiVersion": "closeknit.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"template": {"spec": {"containers": [container]}}, **spec},
        }
        self.cluster.apply(job)

    def change(self, kind: str, name: str, patch: dict[str, Any], *, namespaced: bool = True) -> None:
        self.cluster.patch(kind, name, patch, self.namespace if namespaced else None)

    def job(self, name: str = "train") -> dict[str, Any]:
        """With an empty status as long as the operator has said nothing of it."""
        return {"status": {}} | self.cluster.get("trainingjob", name, self.namespace)

    def wait_for_state(self, state: str, name: str = "train") -> dict[str, Any]:
        def status() -> dict[str, Any] | None:
            found: dict[str, Any] = self.job(name).get("status", {})
            return found if found.get("state") == state else None

        return self.cluster.wait_for(status, f"{name} to be {state}")

    def wait_for_reason(self, reason: str, name: str = "train") -> dict[str, Any]:
        def pending() -> dict[str, Any] | None:
            found: dict[str, Any] = self.job(name).get("status", {}).get("pending", {})
            return found if found.get("reason") == reason else None

        return self.cluster.wait_for(pending, f"{name} to wait for {reason}")

    def all(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cluster.get(kind, namespace=self.namespace)["items"]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def names(self, kind: str) -> list[str]:
        return [each["metadata"]["name"] for each in self.all(kind)]

    def live_pods(self) -> list[str]:
        """Those that are not over: of an attempt that has ended the others stay for a while."""
        return [pod["metadata"]["name"] for pod in self._live()]

    def nodes_of_pods(self) -> list[str | None]:
        """Nodes of those that are not over."""
        return [pod["spec"].get("nodeName") for pod in self._live()]

    def _live(self) -> list[dict[str, Any]]:
        return [pod for pod in self.all("pods") if pod["status"].get("phase") not in {"Succeeded", "Failed"}]

    def finish(self, pod: str, how: str) -> None:
        """Has kwok end a Pod: succeed or fail; or, late, not end it when it is stopped."""
        self.change("pod", pod, {"metadata": {"annotations": {"harness.closeknit.dev/exit": how}}})

    def wait_for_nothing(self) -> None:
        """Waits until nothing is left of what the operator makes."""
        kinds = ("pods", "services", "resourceclaims")
        # The garbage collector looks for new kinds every 30 s, and collects nothing of a CRD's owners before.
        self.cluster.wait_for(lambda: not any(self.names(kind) for kind in kinds), "all children to be gone", 90)

    def delete(self, kind: str, name: str) -> None:
        self.cluster.delete(kind, name, self.namespace)

    def writes(self, *, since: datetime | None = None, dry_run: bool = False) -> list[AuditEvent]:
        """What the operator wrote in this story's namespace, in etcd's order; the last of it may still be missing.
        `since`: what it began to write later, for of two lists the second may have more of what was before, too."""
        events = [
            event
            for event in self.cluster.audit_events()
            if event.user == USER
            and event.namespace == self.namespace
            and event.dry_run is dry_run
            and (since is None or event.received > since)
        ]
        return sorted(events, key=lambda event: (event.revision or 0, event.at))

    def told(self) -> list[str]:
        """Reasons of the job's Events, in their order."""
        events = [each for each in self.all("events.events.k8s.io") if each["regarding"]["kind"] == "TrainingJob"]
        return [each["reason"] for each in sorted(events, key=lambda each: each["eventTime"])]

    def wait_for_told(self, *reasons: str) -> None:
        """Waits until these are the reasons of the job's Events, in their order: one follows the status that it tells
        of."""
        self.cluster.wait_for(lambda: self.told() == [*reasons], f"the Events {', '.join(reasons)}")

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return 0.0

    def restart(self, how: signal.Signals = signal.SIGKILL) -> None:
        with suppress(ProcessLookupError):  # the test before has failed to start one
            os.kill(self.pid, how)
        self.cluster.wait_for(lambda: not is_running(self.pid), "the operator to end")
        self.pid = start_operator(self.cluster, self.port, *self.options)


B = TypeVar("B", bound=Bed)


@contextmanager
def standing(kind: type[B], plugin_nodes: Sequence[str], dra_nodes: Sequence[str]) -> Iterator[B]:
    """A control plane of its own, for an operator would touch other tests' jobs."""
    profiles = dict.fromkeys(plugin_nodes, ON_PLUGIN_PROFILE) | dict.fromkeys(dra_nodes, ON_DRA_PROFILE)
    with LocalCluster(taint_rules=True) as cluster:
        install(cluster, *kind.chart)
        plugin = [node_object(name, profiles[name], plugin=True, rdma=8) for name in plugin_nodes]
        dra = [node_object(name, profiles[name], plugin=False) for name in dra_nodes]
        slices = [each for name in dra_nodes for each in resource_slices(name, profiles[name])]
        cluster.apply(*plugin, *dra, device_class(), *slices)
        start_agents(cluster, [{"name": name, "profile": profile} for name, profile in profiles.items()])
        bed = kind(cluster, free_port())
        cluster.wait_for(lambda: len(cluster.get("nodetopologies")["items"]) == len(profiles), "the agents")
        bed.pid = start_operator(cluster, bed.port, *bed.options)
        yield bed


def others(writes: list[AuditEvent]) -> list[str]:
    """Writes that are not of a Pod or claim."""
    return [f"{event.verb} {event.resource}" for event in writes if event.resource not in {"pods", "resourceclaims"}]


def unverified() -> ssl.SSLContext:
    """TLS as kubelets speak it to a probe: with whatever certificate is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def status_of(port: int, path: str, token: str = "") -> int | None:
    """HTTP status of the answer of an operator that serves beyond localhost; None while nobody answers."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"https://127.0.0.1:{port}{path}"
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=10, context=unverified()) as response:  # noqa: S310 - https
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
