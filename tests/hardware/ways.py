"""The same program in three ways: as a process of this machine, in Pods written by hand, and as a TrainingJob."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from closeknit.api.names import GPU_DRA_DRIVER, GPUS_ANNOTATION
from hardware.gpus import WITHOUT_MULTICAST
from hardware.site import IMAGE, Site, in_container
from hardware.stack import JOBS, Stack
from hardware.trainings import PRETENDED_RESOURCES, RESOURCES, training

PROGRAM = Path(__file__).with_name("collectives.py")
RUN_TIMEOUT_S = 90  # 25 s on two GPUs
PRETENDED_TIMEOUT_S = 300  # of a machine that others use as well
PORT = 29500
_DECODER = json.JSONDecoder()
SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
POD_SECURITY = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}


@dataclass
class Run:
    """What one run said of itself, and what was planned of it."""

    way: str
    planned: list[str]
    """Uuids, in rank order."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    """Uuids that nvidia-smi -L printed in there, sorted; of all Pods."""
    nccl: list[str] = field(default_factory=list)
    """NCCL's own lines on what it uses."""
    predicted_gb_s: float | None = None
    verified: str | None = None
    """Status and reason of PlacementVerified while the job ran, as the kubelet told the agent."""
    limited_by: str | None = None
    seconds: float = 0.0

    def read(self, text: str) -> None:
        """Takes up what one of its logs says."""
        for line in text.splitlines():
            self.lines += _said(line)
            if "(UUID: " in line:
                self.listed.append(line.rpartition("(UUID: ")[2].rstrip(")"))
            elif "NCCL INFO" in line:
                self.nccl.append(line.partition("NCCL INFO ")[2])
        self.listed.sort()

    @property
    def bandwidths(self) -> dict[str, float]:
        """Collective -> bus bandwidth in GB/s; the barrier in microseconds."""
        found = {}
        for line in self.lines:
            if "collective" in line:
                figure = line.get("bus_gb_s", line.get("microseconds"))
                if figure is not None:
                    found[line["collective"]] = figure
        return found

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """What each rank saw, in rank order."""
        return next((line["ranks"] for line in self.lines if "ranks" in line), [])


def _said(line: str) -> Iterator[dict[str, Any]]:
    """The objects in a line, wherever they begin: several ranks and NCCL speak on one stream, and one may go on in the
    line of another. What is torn itself is lost."""
    at = line.find('{"')
    while at >= 0:
        try:
            found, end = _DECODER.raw_decode(line, at)
        except ValueError:
            end = at + 1
        else:
            yield found
        at = line.find('{"', end)


class Ways:
    """Runs the program on this machine's GPUs."""

    def __init__(self, stack: Stack, site: Site) -> None:
        self._stack = stack
        self._site = site
        self._count = 0
        self._timeout_s = PRETENDED_TIMEOUT_S if site.pretended else RUN_TIMEOUT_S

    def outside(self, uuids: Sequence[str], environment: Mapping[str, str] | None = None) -> Run:
        """As processes of this machine."""
        run = Run("outside", list(uuids))
        began = time.monotonic()
        program = [self._site.trainer, "-m", "torch.distributed.run", "--standalone"]
        program += [f"--nproc_per_node={len(uuids)}", str(PROGRAM)]
        variables = self._variables(environment or {})
        if not self._site.pretended:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        variables |= WITHOUT_MULTICAST
        done = subprocess.run(
            program, env=own | variables, capture_output=True, text=True, timeout=self._timeout_s, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.returncode}\n{(done.stdout + done.stderr)[-6000:]}")
        run.read(done.stdout)
        run.seconds = time.monotonic() - began
        return run

    def start_job(
        self, gpus: int, environment: Mapping[str, str] | None = None, program: Path = PROGRAM, **spec: Any
    ) -> str:
        """Applies a TrainingJob; its name."""
        pod = self._pod_spec("exec " + " ".join(self._torchrun(program=program)), self._variables(environment or {}))
        return self._apply({"gpus": gpus, "framework": "PyTorch", **spec}, pod)

    def example(self, name: str, gpus: int) -> Run:
        """An example for PyTorch, on so many GPUs of one node, from `kubectl apply` to its end."""
        command, spec = training(name, gpus, self._site)
        variables = self._variables({"NCCL_DEBUG": "WARN"})  # what is read is the example's own word
        pod = self._pod_spec(f"exec {command}", variables)
        resources = PRETENDED_RESOURCES if self._site.pretended else RESOURCES
        pod["containers"][0]["resources"] = {"requests": resources, "limits": resources}
        return self.end_job(self._apply(spec, pod), name)

    def _apply(self, spec: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
        self._count += 1
        name = f"job-{self._count}"
        job = {
            "apiVersion": "closeknit.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": JOBS},
            "spec": {**spec, "template": {"spec": pod}},
        }
        self._stack.cluster.apply(job)
        return name

    def end_job(self, name: str, way: str = "TrainingJob") -> Run:
        """Waits until the job has succeeded, and reads what it said."""
        began = time.monotonic()
        job = self._stack.wait_for(lambda: self._ended(name), f"TrainingJob {name} to end", self._timeout_s)
        pods = sorted(self._pods(f"closeknit.dev/job={name}"), key=lambda each: str(each["metadata"]["name"]))
        planned = [uuid for pod in pods for uuid in pod["metadata"]["annotations"][GPUS_ANNOTATION].split(",")]
        run = Run(way, planned)
        placement = job["status"]["placement"]
        run.predicted_gb_s = placement.get("predictedBusBandwidthGBps")
        run.limited_by = placement.get("limitedBy")
        for condition in job["status"]["conditions"]:
            if condition["type"] == "PlacementVerified":
                run.verified = f"{condition['status']} {condition.get('reason')}: {condition.get('message')}"
        self._read(run, pods)
        if job["status"]["state"] != "Succeeded":
            raise RuntimeError(f"{name}: {json.dumps(job['status'])[:2000]}\n{self._logs(pods)[-6000:]}")
        run.seconds = time.monotonic() - began
        self._stack.cluster.kubectl("delete", "trainingjob", name, f"--namespace={JOBS}", "--wait")
        self._wait_until_gone(f"closeknit.dev/job={name}")
        return run

    def job(self, gpus: int, environment: Mapping[str, str] | None = None, **spec: Any) -> Run:
        """A TrainingJob from `kubectl apply` to its end."""
        return self.end_job(self.start_job(gpus, environment, **spec))

    def by_hand(self, nodes: Sequence[tuple[str, Sequence[str]]], environment: Mapping[str, str] | None = None) -> Run:
        """Pods on these nodes with claims for these GPUs each, and torchrun's arguments; nothing of closeknit's."""
        self._count += 1
        name = f"hand-{self._count}"
        began = time.monotonic()
        run = Run("Pod by hand", [uuid for _, uuids in nodes for uuid in uuids])
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"hand": name}}
        metadata = {"name": name, "namespace": JOBS}
        objects: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service}]
        for rank, (node, uuids) in enumerate(nodes):
            own = {**metadata, "name": f"{name}-{rank}", "labels": {"hand": name}}
            where = [f"--nnodes={len(nodes)}", f"--nproc_per_node={len(uuids)}", f"--node_rank={rank}"]
            where += [f"--master_addr={name}-0.{name}.{JOBS}.svc", f"--master_port={PORT}"]
            spec = self._pod_spec("exec " + " ".join(self._torchrun(where)), self._variables(environment or {}))
            spec |= {"hostname": own["name"], "subdomain": name, "nodeSelector": {"kubernetes.io/hostname": node}}
            spec |= {"restartPolicy": "Never", "resourceClaims": [{"name": "gpus", "resourceClaimName": own["name"]}]}
            spec["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
            # Without it NCCL fails where ranks of one Pod share memory: /dev/shm has 64 MiB by itself.
            spec["containers"][0]["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108
            spec["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
            objects += [_claim(own, uuids), {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": spec}]
        self._stack.cluster.apply(*objects)
        pods = self._stack.wait_for(lambda: self._ended_pods(f"hand={name}", len(nodes)), name, self._timeout_s)
        self._read(run, pods)
        if any(pod["status"]["phase"] != "Succeeded" for pod in pods):
            raise RuntimeError(f"{name}: {self._logs(pods)[-6000:]}")
        run.seconds = time.monotonic() - began
        claims = [f"resourceclaim/{each['metadata']['name']}" for each in pods]
        self._stack.cluster.kubectl("delete", f"--namespace={JOBS}", f"service/{name}", *claims, "--wait=false")
        self._stack.cluster.kubectl("delete", "pod", f"--selector=hand={name}", f"--namespace={JOBS}", "--wait")
        self._wait_until_gone(f"hand={name}")
        return run

    def log_of(self, name: str) -> str:
        """What the Pods of a job have said so far."""
        return self._logs(self._pods(f"closeknit.dev/job={name}"))

    def _torchrun(self, arguments: Sequence[str] = (), program: Path = PROGRAM) -> list[str]:
        """As a user calls it; where the arguments are, and else the environment, come from somebody else."""
        return [self._site.trainer, "-m", "torch.distributed.run", *arguments, in_container(program)]

    def _variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        # What it uses is read from its log, so that the log has to say it.
        found = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", **environment}
        if self._site.pretended:  # Debian's torchrun 1.13 cannot read its own default of these two under Python 3.11
            found |= {"PET_REDIRECTS": "9:1", "PET_TEE": "9:1", "BYTES": str(1 << 20)}
        return found

    def _pod_spec(self, command: str, environment: Mapping[str, str]) -> dict[str, Any]:
        variables = {"HOME": "/tmp", **WITHOUT_MULTICAST, **environment}  # noqa: S108 - the container's own
        return {
            "securityContext": POD_SECURITY,
            "terminationGracePeriodSeconds": 2,
            "containers": [
                {
                    "name": "trainer",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["/bin/sh", "-c", f"nvidia-smi -L; {command}"],
                    "env": [{"name": key, "value": value} for key, value in variables.items()],
                    "securityContext": SECURITY,
                }
            ],
        }

    def _ended(self, name: str) -> dict[str, Any] | None:
        job = self._stack.cluster.get("trainingjob", name, JOBS)
        return job if job.get("status", {}).get("state") in ("Succeeded", "Failed") else None

    def _ended_pods(self, selector: str, count: int) -> list[dict[str, Any]] | None:
        pods = self._pods(selector)
        ended = [pod for pod in pods if pod["status"].get("phase") in ("Succeeded", "Failed")]
        return pods if len(ended) == count else None

    def _pods(self, selector: str) -> list[dict[str, Any]]:
        key, _, value = selector.partition("=")
        found = self._stack.cluster.get("pods", namespace=JOBS)["items"]
        return [pod for pod in found if pod["metadata"].get("labels", {}).get(key) == value]

    def _read(self, run: Run, pods: Sequence[dict[str, Any]]) -> None:
        run.read(self._logs(pods))

    def _logs(self, pods: Sequence[dict[str, Any]]) -> str:
        names = [str(pod["metadata"]["name"]) for pod in pods]
        logs = [self._stack.cluster.kubectl("logs", name, f"--namespace={JOBS}", check=False) for name in names]
        return "\n".join(logs)

    def _wait_until_gone(self, selector: str) -> None:
        self._stack.wait_for(lambda: not self._pods(selector), f"the Pods of {selector} to be gone", 60)


def _claim(metadata: Mapping[str, Any], uuids: Sequence[str]) -> dict[str, Any]:
    chosen = f"device.attributes['{GPU_DRA_DRIVER}'].uuid in {list(uuids)!r}"
    exactly = {"deviceClassName": GPU_DRA_DRIVER, "count": len(uuids), "selectors": [{"cel": {"expression": chosen}}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": dict(metadata),
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
    }
