"""What must hold at every step, whatever goes wrong. It knows a booking and a Pod by what is stored alone."""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

from closeknit.api.names import GPUS_ANNOTATION, INDEX_LABEL, JOB_LABEL
from closeknit.api.objects import TrainingJob
from closeknit.controller.writes.resources import PODS, TRAINING_JOBS
from closeknit.kube.api import JsonObject, Key, Resource
from closeknit.lifecycle.transitions.ends import KEPT_ATTEMPTS
from faults.kinds import NODES
from faults.store import Change
from lives.api_server import ApiServer
from lives.scheduler import allocatable, is_live, pin, requests
from lives.training import Training, gang_of
from scenarios.operated import NODE_TOPOLOGIES

OVER = ("Succeeded", "Failed", "Suspended")


def is_ours(pod: JsonObject) -> bool:
    """Whether a TrainingJob owns the Pod."""
    return JOB_LABEL in (pod["metadata"].get("labels") or {}) and bool(pod["metadata"].get("ownerReferences"))


def owner(pod: JsonObject) -> str:
    """uid of its job."""
    return str(pod["metadata"]["ownerReferences"][0]["uid"])


def attempt_of(pod: JsonObject) -> int:
    """Number of its attempt; its label may have been emptied."""
    return gang_of(pod)[1]


def planned_gpus(pod: JsonObject) -> frozenset[str]:
    """uuids of the GPUs that it was made for."""
    return frozenset((pod["metadata"].get("annotations") or {}).get(GPUS_ANNOTATION, "").split(","))


def is_true(job: JsonObject, *types: str) -> bool:
    """Whether one of these conditions holds."""
    conditions = job.get("status", {}).get("conditions", ())
    return any(each["type"] in types and each["status"] == "True" for each in conditions)


def _image(of: JsonObject) -> str:
    return str(of["spec"]["containers"][0]["image"])


def shares(job: JsonObject) -> list[Any]:
    """What the job has booked; nothing where its attempt is over."""
    status = job.get("status", {})
    ended = [each["number"] for each in status.get("attempts") or () if not each.get("inPlace")]
    if is_true(job, *OVER) or status.get("attempt") in ended:
        return []
    return list((status.get("placement") or {}).get("nodes") or ())


def held_shares(job: JsonObject) -> list[Any]:
    """Those of them on nodes that are not lost."""
    lost = set[int]()
    for run in filter(None, ((job.get("status", {}).get("placement") or {}).get("lost") or "").split(",")):
        first, _, last = run.partition("-")
        lost.update(range(int(first), int(last or first) + 1))
    return [share for position, share in enumerate(shares(job)) if position not in lost]


class Invariants:
    """Looks at every change, and keeps what was wrong."""

    def __init__(
        self,
        server: ApiServer,
        training: Training,
        note: Callable[[str, str], None],
        is_heard_bound: Callable[[JsonObject], bool],
    ) -> None:
        """`is_heard_bound` tells whether the operator has been told that a Pod is bound."""
        self.broken: list[str] = []
        self._is_heard_bound = is_heard_bound
        self._booked_before: dict[str, set[str]] = {}
        """By Pod whose job is gone: jobs that were given its node before the operator heard that it is bound."""
        self._before_growth: dict[str, JsonObject] = {}
        """By the uid of a job that grows in its Pods: what it was before."""
        self.grown = self.taken_back = 0
        """Growths in place that came about, and that did not."""
        self._server = server
        self._training = training
        self._note = note
        server.observers.append(self._see)

    def take_decision(self, job: TrainingJob) -> None:
        """A job is to be booked: what the operator hears until that is stored, it could not know."""
        placement = job.status.placement
        if placement is None or placement.awaits:
            return
        for pod in [pod for share in placement.nodes for pod in self._live_on(share.name)]:
            if self._job(owner(pod)) is None and not self._is_heard_bound(pod):
                self._booked_before.setdefault(pod["metadata"]["uid"], set()).add(str(job.metadata.uid))

    def _see(self, resource: Resource, change: Change) -> None:
        found: Iterator[str] = iter(())
        if resource == PODS and change.new is not None and change.old is None and is_ours(change.new):
            found = self._made(change.new)
        elif resource == TRAINING_JOBS and change.new is not None:
            found = self._told(change.old or {}, change.new)
        for words in found:
            self.broken.append(words)
            self._note("INVARIANT", words)

    def _made(self, pod: JsonObject) -> Iterator[str]:
        """A Pod of a gang is made: its booking is stored, and whatever it needs is free."""
        name, node = pod["metadata"]["name"], pin(pod)
        job = self._job(owner(pod))
        if job is None:
            return  # deleted while this was on its way
        status = job.get("status", {})
        index = int(pod["metadata"]["labels"][INDEX_LABEL])
        booked = shares(job)
        if len(held_shares(job)) != len(booked):
            yield f"Pod {name} is made while nodes of its gang are lost"
        if status.get("attempt") != attempt_of(pod) or index >= len(booked) or booked[index]["name"] != node:
            yield f"Pod {name} is made for {node} before that is booked"
        if is_true(job, *OVER):
            yield f"Pod {name} is made though its job is over"
        if _image(pod) != _image(job["spec"]["template"]):
            yield f"Pod {name} is made of a template that its job no longer has"
        for other in self._live_on(node):
            is_before = owner(other) == owner(pod) and other["metadata"]["name"] != name
            if is_before and not planned_gpus(pod).isdisjoint(self._told_gpus(other)):
                yield f"Pod {name} is made while {other['metadata']['name']} still has its GPUs on {node}"
        yield from self._doubles(node)

    def _told_gpus(self, pod: JsonObject) -> frozenset[str]:
        """uuids of the GPUs that a Pod has by its node's agent; of a Pod that no agent names, those planned. A device
        plugin may have given it others."""
        topology = self._server.view(NODE_TOPOLOGIES).get(Key("", pin(pod) or ""), {})
        entries = topology.get("status", {}).get("allocations") or ()
        own = [each for each in entries if each.get("podUID") == pod["metadata"]["uid"]]
        return frozenset(device for each in own for device in each["devices"]) or planned_gpus(pod)

    def _told(self, before: JsonObject, job: JsonObject) -> Iterator[str]:
        """A job's status is stored: nothing is booked twice, nothing is untrue, nothing goes back."""
        name, uid, status = job["metadata"]["name"], job["metadata"]["uid"], job.get("status", {})
        held = held_shares(job)
        for node in [share["name"] for share in held] if held != held_shares(before or {}) else ():
            yield from self._doubles(node)
        if len(held) != len(shares(job)) and is_true(job, "Placed", "Running"):
            yield f"{name} has lost nodes, and is told to have all"
        booked = sum(len(share["gpus"]) for share in shares(job))
        least = job["spec"].get("elastic", {}).get("minGPUs", job["spec"]["gpus"])
        if booked and not least <= booked <= job["spec"]["gpus"]:
            yield f"{name} asks for {job['spec']['gpus']} GPUs, and {booked} are booked"
        if is_true(job, *OVER) and is_true(job, "Degraded"):
            yield f"{name} holds nothing and is told to lack something"
        was = before.get("status", {}).get("attempt") or 0
        if status.get("attempt", 0) < was:
            yield f"{name} goes back from attempt {was} to {status.get('attempt')}"
        for end, truth in (("Succeeded", self._training.succeeded), ("Failed", self._training.failed)):
            if is_true(before, end) and not is_true(job, end):
                yield f"{name} is no longer {end}"
            is_late = end == "Failed" and _last_end(job).get("reason") == "DeadlineExceeded"
            if is_true(job, end) and not is_true(before, end) and uid not in truth and not is_late:
                yield f"{name} is told to have {end}, and has not"
        growth = _growth(before)
        if growth is not None and growth["ended"] not in [each["ended"] for each in status.get("attempts") or ()]:
            if _as_it_ran(job) != (as_it_was := self._before_growth.get(uid)):
                yield f"{name} takes its growth back, and is {_as_it_ran(job)} instead of {as_it_was}"
            self.taken_back += 1
            return
        if growth is None and _growth(job) is not None:
            self._before_growth[uid] = _as_it_ran(before)
        self.grown += growth is not None and is_true(job, "Running")
        yield from self._charged(before, job)
        yield from _counted(before, job)

    def _charged(self, before: JsonObject, job: JsonObject) -> Iterator[str]:
        """A run has ended: the job pays for what it has done, and for nothing else."""
        name, status = job["metadata"]["name"], job.get("status", {})
        limit = (job["spec"].get("restart") or {}).get("limit", 0)
        charges, last = status.get("charges") or (), _last_end(job)
        if len(charges) > limit and last.get("reason") != "RestartLimitExceeded":  # gangs go on while nobody counts
            yield f"{name} has started again {len(charges)} times within its window, and may {limit} times"
        if last == _last_end(before):
            return
        if last["charged"] and job["metadata"]["uid"] not in self._training.failed:
            yield f"{name} is charged for an end, and none of its ranks has failed"
        if last["reason"] == "PodFailed" and is_true(job, "Failed") and limit:
            yield f"{name} has failed with {len(charges)} of {limit} restarts"
        if last["reason"] == "RestartLimitExceeded" and len(charges) < limit:
            yield f"{name} is past its limit with {len(charges)} of {limit} restarts"
        if last["reason"] == "DeadlineExceeded" and "activeDeadlineSeconds" not in job["spec"]:
            yield f"{name} has no deadline and is past it"

    def _doubles(self, node: str | None) -> Iterator[str]:
        """GPUs of a node that two jobs have by bookings and Pods, and more of them than there are."""
        stored = self._server.view(NODES).get(Key("", node or ""))
        if node is None or stored is None:
            return
        exact: dict[str, str] = {}
        counts: dict[str, int] = {}
        awaited: dict[str, str] = {}
        makers = self._makers()
        for job in self._server.view(TRAINING_JOBS).values():
            for share in held_shares(job):
                uid = job["metadata"]["uid"]
                if share["name"] == node and job["status"]["placement"].get("awaits"):
                    # Others have it until they have made room; nobody else waits for the same, but for who is to
                    # make this room and waits itself.
                    if share["binding"] != "BestEffort" and uid not in makers:
                        yield from _shared(awaited, uid, [f"GPU-{node}-{gpu}" for gpu in share["gpus"]])
                elif share["name"] == node:
                    counts[uid] = max(counts.get(uid, 0), len(share["gpus"]))
                    if share["binding"] != "BestEffort":
                        yield from _shared(exact, uid, [f"GPU-{node}-{gpu}" for gpu in share["gpus"]])
        for pod in self._live_on(node):
            if self._job(owner(pod)) is None and self._is_unheard(pod, counts):
                continue
            gpus = planned_gpus(pod)
            counts[owner(pod)] = max(counts.get(owner(pod), 0), len(gpus))
            if requests(pod)["nvidia.com/gpu"] in {0, allocatable(stored)["nvidia.com/gpu"]}:
                yield from _shared(exact, owner(pod), gpus)
        there = int(stored["metadata"]["labels"]["test/gpus"])
        if sum(counts.values()) > there:
            yield f"{sum(counts.values())} of {there} GPUs of {node} are given away"

    def _is_unheard(self, pod: JsonObject, holders: Collection[str]) -> bool:
        """Whether the operator could not know that a Pod whose job is gone holds its node's GPUs when it gave them to
        these jobs, by uid. The garbage collector deletes it any moment, and nobody else may. Until it is gone neither
        scheduler nor kubelet gives them to anybody else."""
        before = self._booked_before.setdefault(pod["metadata"]["uid"], set())
        if not self._is_heard_bound(pod):
            before.update(holders)
            return True
        return not before.isdisjoint(holders)

    def _makers(self) -> set[str]:
        """uids of the jobs that make room for others."""
        jobs = self._server.view(TRAINING_JOBS).values()
        awaits = [(job.get("status", {}).get("placement") or {}).get("awaits") or () for job in jobs]
        return {each["uid"] for some in awaits for each in some}

    def _live_on(self, node: str | None) -> list[JsonObject]:
        return [pod for pod in self._server.view(PODS).values() if is_ours(pod) and is_live(pod) and pin(pod) == node]

    def _job(self, uid: str) -> JsonObject | None:
        return next((job for job in self._server.view(TRAINING_JOBS).values() if job["metadata"]["uid"] == uid), None)


def _last_end(job: JsonObject) -> JsonObject:
    """Empty before the first."""
    ends: list[JsonObject] = (job.get("status") or {}).get("attempts") or [{}]
    return ends[-1]


def _growth(job: JsonObject) -> JsonObject | None:
    """The end by a growth in place whose added Pods are to come; None without one."""
    is_open = "swapping" in ((job.get("status") or {}).get("placement") or {})
    ended = _last_end(job)
    return ended if is_open and ended.get("reason") == "Grown" else None


def _as_it_ran(job: JsonObject) -> JsonObject:
    """What a growth that is taken back leaves as it was."""
    status = job["status"]
    (since,) = (each["lastTransitionTime"] for each in status["conditions"] if each["type"] == "Running")
    kept = {field: status.get(field) for field in ("attempt", "restarts", "cost", "startTime", "charges")}
    nodes = [(share["name"], share["gpus"]) for share in shares(job)]
    return {**kept, "since": since, "nodes": nodes, "attempts": (status.get("attempts") or [])[1 - KEPT_ATTEMPTS :]}


def _counted(before: JsonObject, job: JsonObject) -> Iterator[str]:
    """What a status counts goes on, and phases add up."""
    name, was, now = job["metadata"]["name"], before.get("status") or {}, job.get("status") or {}
    if now.get("restarts", 0) < was.get("restarts", 0):
        yield f"{name} goes back from {was['restarts']} restarts to {now.get('restarts')}"
    before_s, now_s = _cost(was), _cost(now)
    if any(now_s.get(cause, 0) < length_s for cause, length_s in before_s.items()):
        yield f"{name} goes back from {before_s} to {now_s}"
    ended = _last_end(job)
    phases = {phase: int(length[:-1]) for phase, length in (ended.get("phases") or {}).items()}
    if is_true(job, "Running") and not is_true(before, "Running") and "start" in phases:
        (since,) = (each["lastTransitionTime"] for each in now["conditions"] if each["type"] == "Running")
        took_s = (datetime.fromisoformat(since) - datetime.fromisoformat(ended["ended"])).total_seconds()
        if sum(phases.values()) - phases["detect"] != max(took_s, 0):
            yield f"{name} runs again after {took_s} s, and its phases are {phases}"


def _cost(status: JsonObject) -> dict[str, int]:
    cost = status.get("cost") or {}
    return {"trained": cost.get("trainedSeconds", 0), **cost.get("lostGPUSeconds", {})}


def _shared(exact: dict[str, str], job: str, gpus: Iterable[str]) -> Iterator[str]:
    for gpu in sorted(gpus):
        if exact.setdefault(gpu, job) != job:
            yield f"{gpu} is given to two jobs"
