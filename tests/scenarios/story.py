"""A job's life without a cluster: steps of {what happens, what the lifecycle decides, what that changes}.

The world is manifests. `settle` applies Plans as the API server would until nothing more is to be written; what
kubelets, scheduler and people do is done to the manifests by name. What an API server refuses is a table of names.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from closeknit.api.names import JobKey
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.kinds import from_document
from closeknit.cluster.meta import Owner
from closeknit.cluster.quota import Quota
from closeknit.launch.owner import owned
from closeknit.lifecycle.answers import NOTHING, Answers, after
from closeknit.lifecycle.conditions import timestamp
from closeknit.lifecycle.decision import Decision, decide
from closeknit.lifecycle.memory import Memory
from closeknit.lifecycle.plan import Action, Create, Delete, Notice, Plan
from closeknit.lifecycle.results import (
    Account,
    Created,
    Deleted,
    Denial,
    Exists,
    Failed,
    Failure,
    Judgement,
    Quotas,
    Refused,
    Result,
    Stored,
    judged,
)
from closeknit.placement.tables import Tables
from scenarios.manifests import node, node_topology, resource_slice

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
Key = tuple[str, str, str]
"""Kind, namespace, name."""


def plugin_node(name: str, *, gpus: int = 8) -> list[dict[str, Any]]:
    """A node whose GPUs a device plugin offers."""
    return [node(name, gpus=gpus), node_topology(name, count=gpus)]


def dra_node(name: str, *, gpus: int = 8) -> list[dict[str, Any]]:
    """A node whose GPUs claims bind."""
    return [node(name, gpus=None), node_topology(name, count=gpus), resource_slice(name, range(gpus))]


class Story:
    """The world of one test; `written` is every write of ours, in order."""

    def __init__(self, *manifests: Mapping[str, Any]) -> None:
        self.now = NOW
        self.objects: dict[Key, dict[str, Any]] = {}
        self.written: list[str] = []
        self.notices: list[Notice] = []
        self.forbidden: dict[str, str] = {}
        """Name of a Pod, or kind and name of another child -> the API server's words for refusing it."""
        self.taken: set[str] = set()
        """The same of children whose name somebody else has."""
        self.dead: set[str] = set()
        """Nodes whose kubelets confirm nothing: a Pod that is deleted there stays."""
        self.unserved: set[str] = set()
        """Namespaces in which the operator has no right to create anything."""
        self.unusable: set[str] = set()
        """Service accounts that the operator may not use."""
        self.undeletable: Denial | None = None
        """What the API server says to whoever deletes a Pod."""
        self.quotas: list[Quota] = []
        """Of every namespace."""
        self.answers: dict[str, Answers] = {}
        self.tables = Tables()
        self._memory = Memory()
        self._serial = 0
        for manifest in manifests:
            self.add(manifest)

    def add(self, manifest: Mapping[str, Any]) -> None:
        """Somebody else makes an object."""
        stored = deepcopy(dict(manifest))
        metadata = stored["metadata"]
        self._serial += 1
        metadata["resourceVersion"] = str(self._serial)
        metadata.setdefault("uid", f"uid-{self._serial}")
        self.objects[(stored["kind"], metadata.get("namespace", ""), metadata["name"])] = stored

    @property
    def cluster(self) -> Cluster:
        """What the operator sees."""
        decoded = (from_document(manifest) for manifest in self.objects.values())
        return build([value for value in decoded if value is not None])

    def decide(self, memory: Memory = Memory()) -> Decision:  # noqa: B008 - frozen
        """What would be decided now; by default by somebody who remembers nothing but answers."""
        return decide(self.cluster, self.tables, replace(memory, answers=self.answers, epoch=7), self.now)

    def plans(
        self, busy: frozenset[JobKey] = frozenset(), put_aside: frozenset[JobKey] = frozenset()
    ) -> tuple[Plan, ...]:
        """What would be written then."""
        return self.decide(Memory(busy=busy, put_aside=put_aside)).plans

    def settle(self) -> None:
        """Decides and writes until there is nothing more to write. What is remembered makes no difference."""
        for _ in range(20):
            decision = self.decide(self._memory)
            self._memory = Memory(schedule=decision.schedule, followed=decision.followed)
            plans = [plan for plan in decision.plans if plan.writes]
            assert plans == [plan for plan in self.plans() if plan.writes]
            if not plans:
                return
            for plan in plans:
                self.write(plan)
        raise AssertionError(f"still writing: {self.written[-6:]}")

    def write(self, plan: Plan) -> None:
        """One Plan, as the operator writes it; what it learns of that is the lifecycle's own."""
        results = self._results(plan)
        self.answers[plan.uid] = after(self.answers.get(plan.uid, NOTHING), plan, results, self.now)

    def _results(self, plan: Plan) -> list[Result]:
        results = self._asked(plan)
        if any(judged(result, plan.uid) is not Judgement.DONE for result in results):
            return results
        for probe in plan.probes:
            results.append(self._create(plan, probe, is_probe=True))
            if judged(results[-1], plan.uid) is not Judgement.DONE:
                return results
        if plan.status is not None:
            results.append(self._store_status(plan))
        for creation in plan.opening:
            made = self._act(plan, creation)
            results += made
            verdicts = {judged(result, plan.uid) for result in made}
            if Judgement.REFUSED in verdicts:
                return results
            if Judgement.AGAIN in verdicts:
                break
        else:
            for action in plan.actions:
                is_refused = any(judged(result, plan.uid) is Judgement.REFUSED for result in results)
                if not is_refused or isinstance(action, Delete):
                    results += self._act(plan, action)
        if plan.notice is not None:
            self.notices.append(plan.notice)
        return results

    def _asked(self, plan: Plan) -> list[Result]:
        """What is read before anything is written, up to the first that keeps the gang from being made."""
        results: list[Result] = []
        if plan.demand is not None:
            results.append(Quotas(plan.demand, tuple(self.quotas)))
        if plan.account and all(judged(result, plan.uid) is Judgement.DONE for result in results):
            results.append(Account(plan.account, plan.account not in self.unusable))
        return results

    def status(self, name: str = "train", namespace: str = "team-b") -> TrainingJobStatus:
        """What is stored of a job."""
        return self.cluster.jobs[JobKey(namespace, name)].status

    def pods(self) -> list[str]:
        """Names of all Pods that there are."""
        return sorted(name for kind, _, name in self.objects if kind == "Pod")

    def names(self, kind: str) -> list[str]:
        """Names of all objects of a kind."""
        return sorted(name for found, _, name in self.objects if found == kind)

    def change_pod(self, name: str, **status: Any) -> None:
        """The kubelet or the scheduler says something of a Pod; node= binds it."""
        pod = self.pod(name)
        if "node" in status:
            pod["spec"]["nodeName"] = status.pop("node")
        pod.setdefault("status", {}).update(status)

    def run_all(self) -> None:
        """The scheduler binds every Pod, allocates its claim, and the kubelets start it."""
        for (kind, namespace, name), pod in list(self.objects.items()):
            if kind != "Pod" or pod.get("status", {}).get("phase") != "Pending":
                continue
            pin = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            target = pin["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
            if pod["spec"].get("resourceClaims"):
                claim = self.objects.get(("ResourceClaim", namespace, name))
                if claim is None:
                    continue
                self.allocate(claim, target, pod["metadata"]["annotations"]["closeknit.dev/gpus"].split(","))
            self.change_pod(name, node=target, phase="Running")

    def allocate(self, claim: dict[str, Any], target: str, uuids: list[str]) -> None:
        """The scheduler gives these GPUs, or MIG devices, to a claim, and the NICs that it names."""
        parts = [part["spec"] for (kind, _, _), part in self.objects.items() if kind == "ResourceSlice"]
        asked = {each["name"]: each["exactly"] for each in claim["spec"]["devices"]["requests"]}
        mig = {
            device["attributes"]["uuid"]["string"]: device["name"]
            for part in parts
            for device in part["devices"]
            if device["attributes"].get("type") == {"string": "mig"}
        }
        gpus = [mig.get(uuid, f"gpu-{uuid.rpartition('-')[2]}") for uuid in uuids] if "gpus" in asked else []
        results = [{"driver": "gpu.nvidia.com", "pool": target, "device": device} for device in gpus]
        if nics := asked.get("nics"):
            words = nics["selectors"][0]["cel"]["expression"]
            results += [
                {"driver": "dra.net", "pool": target, "device": device["name"]}
                for part in parts
                if (part["driver"], part["nodeName"]) == ("dra.net", target)
                for device in part["devices"]
                if "dra.net/pciAddress" in device["attributes"]
                and repr(device["attributes"]["dra.net/pciAddress"]["string"]) in words
            ]
        claim["status"] = {"allocation": {"devices": {"results": results}}}

    def remove_pod(self, name: str) -> None:
        """The Pod object is gone, and its claim with it."""
        (key,) = [key for key in self.objects if key[0] == "Pod" and key[2] == name]
        del self.objects[key]
        self.objects.pop(("ResourceClaim", key[1], name), None)

    def mark_deleted(self, name: str, *, grace_s: float = 0) -> None:
        """Somebody deletes a Pod, which has a grace period to end."""
        self.pod(name)["metadata"]["deletionTimestamp"] = timestamp(self.now + timedelta(seconds=grace_s))

    def lose_node(self, name: str) -> None:
        """A node dies: nobody hears of its kubelet any more."""
        self.dead.add(name)
        (ready,) = (c for c in self.objects[("Node", "", name)]["status"]["conditions"] if c["type"] == "Ready")
        ready |= {"status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": timestamp(self.now)}

    def recover_node(self, name: str) -> None:
        """It is back, and does what it was told meanwhile."""
        self.dead.discard(name)
        (ready,) = (c for c in self.objects[("Node", "", name)]["status"]["conditions"] if c["type"] == "Ready")
        ready |= {"status": "True", "reason": "KubeletReady", "lastTransitionTime": timestamp(self.now)}

    def pass_time(self, seconds: float) -> None:
        """The clock goes on."""
        self.now += timedelta(seconds=seconds)

    def edit_job(self, name: str = "train", namespace: str = "team-b", **spec: Any) -> None:
        """The user changes the spec."""
        job = self.objects[("TrainingJob", namespace, name)]
        job["spec"].update(spec)
        job["metadata"]["generation"] = job["metadata"].get("generation", 1) + 1

    def pod(self, name: str) -> dict[str, Any]:
        """The manifest of a Pod."""
        (found,) = [value for key, value in self.objects.items() if key[0] == "Pod" and key[2] == name]
        return found

    def _store_status(self, plan: Plan) -> Stored:
        assert plan.status is not None
        job = self.objects[("TrainingJob", plan.job.namespace, plan.job.name)]
        assert plan.resource_version == job["metadata"]["resourceVersion"], "a stale decision"
        self._serial += 1
        job["metadata"]["resourceVersion"] = str(self._serial)
        job["status"] = plan.status.wire()
        self.written.append(f"status {plan.status.state}")
        return Stored(str(self._serial))

    def _act(self, plan: Plan, action: Action) -> list[Result]:
        match action:
            case Create(manifest, owns):
                results = [self._create(plan, manifest)]
                if judged(results[0], plan.uid) is Judgement.DONE:
                    key = (manifest["kind"], plan.job.namespace, manifest["metadata"]["name"])
                    uid = self.objects[key]["metadata"]["uid"]
                    results += [self._create(plan, owned(each, manifest, uid)) for each in owns]
                return results
            case Delete("Pod", name, uid):
                if self.undeletable is not None:
                    return [Failed(action, self.undeletable)]
                pod = self.pod(name)
                assert pod["metadata"]["uid"] == uid
                if pod["spec"].get("nodeName") in self.dead and pod["status"]["phase"] in {"Pending", "Running"}:
                    self.mark_deleted(name)
                else:
                    self.remove_pod(name)
                self.written.append(f"delete Pod {name}")
            case Delete(kind, name):
                if (gone := self.objects.pop((kind, plan.job.namespace, name), None)) is not None:
                    self.written.append(f"delete {kind} {name}")
                    self._collect(gone["metadata"]["uid"])
        return [Deleted(action)]

    def _collect(self, uid: str) -> None:
        """What the garbage collector does once something is gone."""
        for key, left in list(self.objects.items()):
            if any(owner["uid"] == uid for owner in left["metadata"].get("ownerReferences", ())):
                del self.objects[key]

    def _create(self, plan: Plan, manifest: dict[str, Any], *, is_probe: bool = False) -> Result:
        name, kind = manifest["metadata"]["name"], manifest["kind"]
        title = name if kind == "Pod" else f"{kind} {name}"
        if title in self.taken:
            return Exists(manifest, (), (), str(self._serial), is_probe)
        if plan.job.namespace in self.unserved:
            return Refused(manifest, Denial(Failure.NO_RIGHT, 403, "Forbidden", "no right"), is_probe)
        if (words := self.forbidden.get(title)) is not None:
            return Refused(manifest, Denial(Failure.FORBIDDEN, 403, "Forbidden", words), is_probe)
        if is_probe:
            return Created(manifest, "", is_probe=True)
        if (there := self.objects.get((kind, plan.job.namespace, name))) is not None:
            owners = there["metadata"].get("ownerReferences", ())
            labels = tuple(there["metadata"].get("labels", {}).items())
            return Exists(
                manifest,
                tuple(Owner(each["kind"], each["name"], each["uid"], each["apiVersion"]) for each in owners),
                labels,
                "",
            )
        self.add({**manifest, **({"status": {"phase": "Pending"}} if kind == "Pod" else {})})
        self.written.append(f"create {kind} {name}")
        return Created(manifest, str(self._serial))
