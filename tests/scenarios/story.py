"""A job's life without a cluster: steps of {what happens, what the lifecycle decides, what that changes}.

The world is manifests. `settle` writes Plans as the operator does until nothing more is to be written; what kubelets,
scheduler and people do is done to the manifests by name. What the API server refuses is a table of names.
"""

import atexit
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from closeknit.api.names import PLACEHOLDER_PRIORITY, PLACEHOLDER_PRIORITY_CLASS, TRAINING_JOB, JobKey
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.capacity.placeholder import CapacityRefusal, FirstAsk
from closeknit.cluster.capacity.provisioning import PROVISIONING_REQUEST
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.kueue.flavors import ServedKind
from closeknit.cluster.kueue_objects import WORKLOADS_SERVED
from closeknit.cluster.objects.silence import Quiet, Silence
from closeknit.cluster.requested_capacity import PROVISIONING_SERVED
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.controller.metrics import Metrics
from closeknit.controller.writes.capacity_writes import CapacityWrites
from closeknit.controller.writes.resources import (
    BY_KIND,
    EVENTS,
    PROVISIONING_REQUESTS,
    RESOURCE_QUOTAS,
    TRAINING_JOBS,
    WORKLOADS,
)
from closeknit.controller.writes.rights import OWN_ACCESS_REVIEWS
from closeknit.controller.writes.workload_writes import write_workloads
from closeknit.controller.writes.write_slots import WriteSlots
from closeknit.controller.writes.writes import Writes
from closeknit.kube.api import Api, JsonObject, ListPage, Resource
from closeknit.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, error_from_status
from closeknit.kube.object_identity import Head
from closeknit.lifecycle.capacity.capacity_news import CapacityNews, CapacityPolicy, capacity_news
from closeknit.lifecycle.kueue.workload_news import WorkloadNews, workload_news
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.lifecycle.writes.answers import NOTHING, Answers, after
from closeknit.lifecycle.writes.plan import Notice, Plan
from closeknit.lifecycle.writes.resource_quotas import Quota
from closeknit.lifecycle.writes.results import Denial, DenialKind
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.decision import Decision, decide
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.queue.entries import queue_place
from faults.virtual_time import VirtualTimeLoop
from scenarios.manifests import node, node_topology, resource_slice

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
Key = tuple[str, str, str]
"""Kind, namespace, name."""
KINDS = {
    **{resource: kind for kind, resource in BY_KIND.items()},
    TRAINING_JOBS: TRAINING_JOB,
    WORKLOADS: "Workload",
    PROVISIONING_REQUESTS: PROVISIONING_REQUEST,
}

# Of all stories: to make either takes longer than the writes of a Plan, and neither keeps anything of a story.
_METRICS = Metrics()
_LOOP = VirtualTimeLoop()
atexit.register(_LOOP.close)


def plugin_node(name: str, *, gpus: int = 8) -> list[dict[str, Any]]:
    """A node whose GPUs a device plugin offers."""
    return [node(name, gpus=gpus), node_topology(name, count=gpus)]


def dra_node(name: str, *, gpus: int = 8) -> list[dict[str, Any]]:
    """A node whose GPUs claims bind."""
    return [node(name, gpus=None), node_topology(name, count=gpus), resource_slice(name, range(gpus))]


class Story:
    """The world of one test; `written` is every write of ours, in order."""

    limited_cpu = ""
    """The CPUs that a LimitRange has every container ask for that asks for none."""

    undeletable_kind = "Pod"

    def __init__(self, *manifests: Mapping[str, Any]) -> None:
        self.now = NOW
        self.objects: dict[Key, dict[str, Any]] = {}
        self.written: list[str] = []
        self.tried: list[str] = []
        """Every dry run of ours, in order."""
        self.notices: list[Notice] = []
        self.forbidden: dict[str, str] = {}
        """Name of a Pod, or kind and name of another child -> the API server's words for refusing it."""
        self.passing_on_trial = False
        """Whether a dry run of a forbidden Pod passes all the same."""
        self.failing: str | None = None
        """In what words the API server fails at every Pod, which it does not refuse."""
        self.taken: set[str] = set()
        """The same of children whose name somebody else has."""
        self.dead: set[str] = set()
        """Nodes whose kubelets confirm nothing: a Pod that is deleted there stays."""
        self.silent: dict[str, Quiet] = {}
        """Nodes that give no sign of life."""
        self.unserved: set[str] = set()
        """Namespaces in which the operator has no right to create anything."""
        self.unusable: set[str] = set()
        """Service accounts that the operator may not use."""
        self.undeletable: Denial | None = None
        """What the API server answers to the deletion of an `undeletable_kind`."""
        self.unstoppable: Denial | None = None
        """What it answers to whoever has a Pod stopped."""
        self.unsized: Denial | None = None
        """What it answers to whoever tells a Pod the size of its gang."""
        self.quotas: list[Quota] = []
        """Of every namespace."""
        self.dropped: tuple[str, str] | None = None
        """A field of a job's status, and one in it, that the CRD has not: the API server takes and drops it."""
        self.serves_kueue = False
        """Whether the API server has Kueue's kinds."""
        self.serves_provisioning = False
        """Whether it has ProvisioningRequests."""
        self.capacity_notes: dict[JobKey, CapacityRefusal | FirstAsk] = {}
        """Why nothing is asked of autoscalers, or since when, by job."""
        self.sidecar_image = ""
        """With which gangs restart in place."""
        self.force_deletes = False
        """Whether Pods on dead nodes are deleted by force."""
        self.answers: dict[str, Answers] = {}
        self.tables = Tables()
        self._memory = Memory()
        self._hopeless: tuple[str, ...] = ()
        self._serial = 0
        self._api = StoryApi(self)
        self._slots = WriteSlots(cast(Api, self._api), _METRICS.count_write)
        for manifest in manifests:
            self.add(manifest)

    def add(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Somebody makes an object; it as stored."""
        stored: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(manifest))
        metadata = stored["metadata"]
        metadata["resourceVersion"] = self.next_version()
        metadata.setdefault("uid", f"uid-{self._serial}")
        self.objects[(stored["kind"], metadata.get("namespace", ""), metadata["name"])] = stored
        return stored

    def next_version(self) -> str:
        """The resourceVersion of the next write."""
        self._serial += 1
        return str(self._serial)

    @property
    def cluster(self) -> Cluster:
        """What the operator sees."""
        decoded = (from_document(manifest) for manifest in self.objects.values())
        silent = (Silence(node, quiet) for node, quiet in self.silent.items())
        served = [ServedKind(WORKLOADS_SERVED)] if self.serves_kueue else []
        served += [ServedKind(PROVISIONING_SERVED)] if self.serves_provisioning else []
        noted = self.capacity_notes.values()
        objects = [*(value for value in decoded if value is not None), *silent, *served, *noted]
        return build(objects, sidecar_image=self.sidecar_image, force_deletes=self.force_deletes)

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
            news = workload_news(self.cluster, self.now)
            if not plans and news == WorkloadNews():
                return
            _LOOP.run_until_complete(write_workloads(self._slots, news))
            for plan in plans:
                self.write(plan)
        raise AssertionError(f"still writing: {self.written[-6:]}")

    def ask(self, policy: CapacityPolicy) -> CapacityNews:
        """What is asked of autoscalers now, and taken back, as the operator writes it."""
        news = capacity_news(self.cluster.at(self.now), self.tables, policy, self.now, queue_place, self._hopeless)
        refused = _LOOP.run_until_complete(CapacityWrites(self._slots, lambda: self.now).ask(news))
        for job in news.forgotten:
            del self.capacity_notes[job]
        self.capacity_notes.update({each.job: each for each in (*news.notes, *refused)})
        self._hopeless = news.hopeless
        return news

    def write_once(self) -> None:
        """What is to be written now, each Plan once, whatever comes of it."""
        for plan in self.plans():
            if plan.writes:
                self.write(plan)

    def write(self, plan: Plan) -> None:
        """One Plan, as the operator writes it; what it learns of that is the lifecycle's own."""
        told = len(self._api.events)
        results = _LOOP.run_until_complete(Writes(self._slots, lambda: self.now, "story").apply(plan))
        if plan.notice is not None and len(self._api.events) > told:
            self.notices.append(plan.notice)
        self.answers[plan.uid] = after(self.answers.get(plan.uid, NOTHING), plan, results, self.now)

    def denial(self, manifest: Mapping[str, Any]) -> str | None:
        """The words in which admission refuses a child; None where it does not."""
        return self.forbidden.get(_title(manifest["kind"], manifest["metadata"]["name"]))

    def status(self, name: str = "train", namespace: str = "team-b") -> TrainingJobStatus:
        """What is stored of a job."""
        return self.cluster.jobs[JobKey(namespace, name)].status

    def pods(self) -> list[str]:
        """Names of all Pods that there are."""
        return sorted(name for kind, _, name in self.objects if kind == "Pod")

    def names(self, kind: str) -> list[str]:
        """Names of all objects of a kind."""
        return sorted(name for found, _, name in self.objects if found == kind)

    def silence(self, node: str, quiet: Quiet) -> None:
        """The node has given no sign of life for so long."""
        self.silent[node] = quiet

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
            bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp(self.now)}
            self.change_pod(name, node=target, phase="Running", conditions=[bound])

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

    def end_stopped(self) -> None:
        """Kubelets end the Pods that were stopped, and keep them."""
        for (kind, _, name), pod in self.objects.items():
            if kind == "Pod" and pod["spec"].get("activeDeadlineSeconds") == 1 and pod["status"]["phase"] == "Running":
                ended = {"terminated": {"exitCode": 143, "reason": "Error"}}
                states = [
                    {**each, "state": ended} if "running" in each["state"] else each
                    for each in pod["status"]["containerStatuses"]
                ]
                self.change_pod(name, phase="Failed", reason="DeadlineExceeded", containerStatuses=states)

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


class StoryApi:
    """The API server of a story: of `closeknit.kube.api.Api` what the operator's writes use. No call of it waits, so
    that a gang is made in the order of its Plan."""

    def __init__(self, story: Story) -> None:
        self.events: set[tuple[str, str]] = set()
        """Namespaces and names."""
        self._story = story

    async def get(self, resource: Resource, name: str, *, namespace: str) -> JsonObject:
        """See `Api.get`. Of what has a name that is taken nothing is known."""
        if _title(KINDS[resource], name) in self._story.taken:
            return {"metadata": {"name": name, "namespace": namespace, "uid": "uid-of-another"}}
        return deepcopy(self._stored(resource, name, namespace))

    async def list(self, resource: Resource, *, namespace: str) -> ListPage:  # noqa: ARG002 - alike in each
        """See `Api.list`: the quotas."""
        assert resource == RESOURCE_QUOTAS
        return ListPage([msgspec.json.encode(_resource_quota(quota)) for quota in self._story.quotas], "1", None)

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str = "", dry_run: bool = False
    ) -> JsonObject:
        """See `Api.create`."""
        if resource == OWN_ACCESS_REVIEWS:
            return {**body, "status": {"allowed": self._may(body["spec"]["resourceAttributes"])}}
        story, kind, name = self._story, body["kind"], body["metadata"]["name"]
        if resource == EVENTS:
            if (namespace, name) in self.events:
                raise _already_exists(resource, name)
            self.events.add((namespace, name))
            return body
        title = _title(kind, name)
        story.tried += [f"{kind} {name}"] if dry_run else []
        if (words := story.failing) is not None and kind == "Pod":
            status = {"reason": "InternalError", "message": f"Internal error occurred: {words}"}
            raise error_from_status(500, msgspec.json.encode(status))
        words = "no right" if namespace in story.unserved else story.denial(body)
        if words is not None and not (dry_run and story.passing_on_trial):
            raise Forbidden(words, code=403, reason="Forbidden")
        if title in story.taken or (kind, namespace, name) in story.objects:
            raise _already_exists(resource, name)
        body = self._limited(body) if kind == "Pod" and story.limited_cpu else body
        if dry_run:
            return body
        story.written.append(f"create {kind} {name}")
        if body.get("spec", {}).get("priorityClassName") == PLACEHOLDER_PRIORITY_CLASS:
            body = {**body, "spec": {**body["spec"], "priority": PLACEHOLDER_PRIORITY}}
        made = {**body, "metadata": {**body["metadata"], "creationTimestamp": timestamp(story.now)}}
        return story.add({**made, "status": {"phase": "Pending"}} if kind == "Pod" else made)

    def _limited(self, pod: JsonObject) -> JsonObject:
        containers = []
        for each in pod["spec"]["containers"]:
            resources = each.get("resources") or {}
            asked = {"cpu": self._story.limited_cpu, **resources.get("limits", {}), **resources.get("requests", {})}
            containers.append({**each, "resources": {**resources, "requests": asked}})
        return {**pod, "spec": {**pod["spec"], "containers": containers}}

    async def make(self, resource: Resource, body: JsonObject, *, namespace: str, dry_run: bool = False) -> Head:
        """See `Api.make`."""
        made = (await self.create(resource, body, namespace=namespace, dry_run=dry_run))["metadata"]
        return Head(made["name"], namespace, made.get("uid", ""), made.get("resourceVersion", ""))

    async def put_status(self, resource: Resource, name: str, body: JsonObject, *, namespace: str) -> Head:
        """See `Api.put_status`."""
        stored, sent = self._stored(resource, name, namespace), body["metadata"]
        metadata = stored["metadata"]
        if (sent["uid"], sent["resourceVersion"]) != (metadata["uid"], metadata["resourceVersion"]):
            raise Conflict("the object has been modified", code=409, reason="Conflict")
        metadata["resourceVersion"] = self._story.next_version()
        stored["status"] = deepcopy(body["status"])
        if (dropped := self._story.dropped) is not None:
            stored["status"].get(dropped[0], {}).pop(dropped[1], None)
        self._story.written.append(f"status {body['status']['state']}")
        return Head(name, namespace, metadata["uid"], metadata["resourceVersion"])

    async def json_patch(
        self,
        resource: Resource,
        name: str,
        patch: Sequence[JsonObject],
        *,
        namespace: str,
        subresource: str | None = None,
    ) -> JsonObject:
        """See `Api.json_patch`: those by which a Pod is stopped or told the size of its gang, and those of
        Workloads."""
        if resource == WORKLOADS:
            return self._patched(self._stored(resource, name, namespace), patch, subresource or "spec")
        is_size = patch[1]["path"] == "/metadata/annotations/closeknit.dev~1size"
        if (said := self._story.unsized if is_size else self._story.unstoppable) is not None:
            raise error_from_status(said.code, msgspec.json.encode({"reason": said.reason, "message": said.message}))
        stored = self._stored(resource, name, namespace)
        test, change, *others = patch
        assert test["path"] == "/metadata/uid"
        if stored["metadata"]["uid"] != test["value"]:
            raise Invalid("the uid is another", code=422, reason="Invalid")
        if subresource == "status":
            return self._marked(stored, change)
        if is_size:
            stored["metadata"]["annotations"]["closeknit.dev/size"] = change["value"]
            self._story.written.append(f"resize Pod {name}")
            return stored
        assert change["path"] == "/spec/activeDeadlineSeconds"
        stored["spec"]["activeDeadlineSeconds"] = change["value"]
        for other in others:  # of a replaced Pod, which leaves its Service
            assert other["path"] == "/metadata/labels/closeknit.dev~1attempt"
            stored["metadata"]["labels"]["closeknit.dev/attempt"] = other["value"]
        self._story.written.append(f"stop Pod {name}")
        return stored

    def _marked(self, pod: JsonObject, change: JsonObject) -> JsonObject:
        """As the chart's policy lets the operator write the status of a Pod."""
        assert change["path"] == "/status/conditions/-"
        there = pod["status"].get("conditions")
        if there is None or any(each["type"] == change["value"]["type"] for each in there):
            raise Invalid("there are none, or this one is among them", code=422, reason="Invalid")
        there.append(change["value"])
        self._story.written.append(f"mark Pod {pod['metadata']['name']}")
        return pod

    def _patched(self, stored: JsonObject, patch: Sequence[JsonObject], part: str) -> JsonObject:
        test, *changes = patch
        assert test["path"] == "/metadata/resourceVersion"
        if stored["metadata"]["resourceVersion"] != test["value"]:
            raise Invalid("the version is another", code=422, reason="Invalid")
        for change in changes:
            _, of, field = change["path"].split("/")
            assert of == part
            if change["op"] == "remove":
                del stored[part][field]
            else:
                stored.setdefault(part, {})[field] = change["value"]
        stored["metadata"]["resourceVersion"] = self._story.next_version()
        self._story.written.append(f"patch {part} of Workload {stored['metadata']['name']}")
        return stored

    async def delete(self, resource: Resource, name: str, *, uid: str, namespace: str, is_forced: bool = False) -> None:
        """See `Api.delete`. The garbage collector comes at once."""
        story, key = self._story, (KINDS[resource], namespace, name)
        is_pod = key[0] == "Pod"
        if key[0] == story.undeletable_kind and story.undeletable is not None:
            said = story.undeletable
            raise error_from_status(said.code, msgspec.json.encode({"reason": said.reason, "message": said.message}))
        there = story.objects.get(key)
        if there is None or there["metadata"]["uid"] != uid:
            return
        story.written.append(f"{'force-delete' if is_forced else 'delete'} {key[0]} {name}")
        if (
            is_pod
            and not is_forced
            and there["spec"].get("nodeName") in story.dead
            and there["status"]["phase"] in {"Pending", "Running"}
        ):
            story.mark_deleted(name)
        elif is_pod:
            story.remove_pod(name)
        else:
            del story.objects[key]
            for left, each in list(story.objects.items()):
                if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences", ())):
                    del story.objects[left]

    def _stored(self, resource: Resource, name: str, namespace: str) -> JsonObject:
        found = self._story.objects.get((KINDS[resource], namespace, name))
        if found is None:
            raise NotFound(f'{resource} "{name}" not found', code=404, reason="NotFound")
        return found

    def _may(self, wanted: Mapping[str, str]) -> bool:
        """Whether RBAC lets the operator do this."""
        match wanted["verb"]:
            case "create":
                return wanted["namespace"] not in self._story.unserved
            case "delete":
                said = self._story.undeletable
                return said is None or said.failure is not DenialKind.NO_RIGHT
            case _:
                return wanted["name"] not in self._story.unusable


def _title(kind: str, name: str) -> str:
    return name if kind == "Pod" else f"{kind} {name}"


def _already_exists(resource: Resource, name: str) -> AlreadyExists:
    return AlreadyExists(f'{resource} "{name}" already exists', code=409, reason="AlreadyExists")


def _resource_quota(quota: Quota) -> JsonObject:
    scopes = [
        {"scopeName": each.scope_name, "operator": each.operator, "values": each.values or []} for each in quota.scopes
    ]
    return {
        "metadata": {"name": quota.name},
        "spec": {"scopeSelector": {"matchExpressions": scopes}},
        "status": {"hard": quota.hard, "used": quota.used},
    }
