"""One node's kubelet: it admits Pods, gives them devices, runs them, and lets go of them in its own time."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from closeknit.api.names import BARRIER_CONTAINER, GPU_RESOURCE, JOB_LABEL
from closeknit.cluster.pods.pod import STOPPED_AFTER_S
from closeknit.controller.writes.resources import PODS, RESOURCE_CLAIMS
from closeknit.kube.api import JsonObject, Key, Resource
from closeknit.sidecar.barrier import GIVES_UP_S
from closeknit.sidecar.gang.member_state import Act
from faults.store import Change
from lives.api_server import FINISHED, GRACE_S, ApiServer, key_of
from lives.hand import Hand
from lives.scheduler import allocated, requests, with_condition
from lives.sidecars import LATE, LOST, Member, Sidecars
from lives.training import Training


@dataclass
class _Run:
    """A Pod whose containers run, or are about to."""

    pod: JsonObject
    devices: tuple[str, ...]
    starts_at: float
    is_started: bool = False
    is_training: bool = False
    """Whether its trainer runs; that of a Pod with a sidecar begins when its barrier is let go."""
    member: Member | None = None
    """Its sidecar, where it has one."""
    stops_at: float | None = None
    """When its containers are gone after it was told to go."""
    is_reported: bool = False
    """Whether its last status was written."""

    @property
    def number(self) -> int:
        """Of its gang's run in these Pods."""
        return 0 if self.member is None else self.member.state.run


class Kubelet(Hand):
    """Knows what really runs on the machine, whatever the API server says."""

    pause_s = (0.02, 0.4)
    reads = (PODS, RESOURCE_CLAIMS)

    def __init__(
        self,
        server: ApiServer,
        chance: random.Random,
        node: str,
        plugin: Sequence[str],
        training: Training,
        sidecars: Sidecars,
    ) -> None:
        super().__init__(server, chance)
        self.name = f"kubelet-{node}"
        self.node = node
        self.is_alive = True
        self.is_cut = False
        """Whether its Pods reach no other node."""
        self.died_at = inf
        self.refusals = 0.0
        """How probable it is that a Pod is refused at admission for no fault of its own."""
        self.runs: dict[str, _Run] = {}
        """By the Pod's uid."""
        self._plugin = tuple(plugin)
        self._training = training
        self._sidecars = sidecars
        training.met.append(self.wake)

    @property
    def is_plugin(self) -> bool:
        """Whether a device plugin offers the GPUs."""
        return bool(self._plugin)

    def concerns(self, resource: Resource, change: Change) -> bool:
        """Whether it is about a Pod of this node."""
        if not self.is_alive or resource not in self.reads:
            return False
        if resource == RESOURCE_CLAIMS:
            return bool(change.new and any(pool == self.node for pool, _ in allocated(change.new)))
        body = change.new or change.old
        return body is not None and body["spec"].get("nodeName") == self.node

    def die(self, *, reboots: bool, is_cut: bool = False) -> None:
        """The machine stops, or only its kubelet, with its network where it `is_cut`: then what runs goes on."""
        self.is_alive, self.is_cut, self.died_at = False, is_cut, self.time
        if reboots:
            for run in self.runs.values():
                self._stop(run)
            self.runs.clear()
        self._sidecars.wake()

    def revive(self) -> None:
        """It is back, and looks at what it has to do."""
        self.is_alive, self.is_cut, self.died_at = True, False, inf
        self.wake()
        self._sidecars.wake()

    def step(self) -> None:
        """Brings what runs to what is asked for."""
        if not self.is_alive:
            return
        there = {
            pod["metadata"]["uid"]: pod
            for pod in self.server.view(PODS).values()
            if pod["spec"].get("nodeName") == self.node
        }
        for uid in [uid for uid in self.runs if uid not in there]:
            self._stop(self.runs.pop(uid))  # somebody removed the object: the containers are killed
        due = [inf]
        for uid, pod in there.items():
            run = self.runs.get(uid)
            if run is not None:
                run.pod = pod
                due.append(self._went_on(run, pod))
            elif "deletionTimestamp" in pod["metadata"]:
                self.server.remove(PODS, key_of(pod))
            elif pod["status"]["phase"] == "Running" or (
                pod["status"]["phase"] == "Pending" and pod["status"].get("initContainerStatuses")
            ):
                self._finish(pod, 255, "Unknown")  # the machine was booted again under it
            elif pod["status"]["phase"] == "Pending":
                due.append(self._admit(pod))
        if (moment := min(due)) < inf:
            self.wake_at(max(moment, self.time + 0.01))

    def _admit(self, pod: JsonObject) -> float:
        """When to look at it again."""
        wanted = requests(pod)[GPU_RESOURCE]
        held = {device for run in self.runs.values() for device in run.devices}
        free = [device for device in self._plugin if device not in held]
        claims = [each["resourceClaimName"] for each in pod["spec"].get("resourceClaims") or ()]
        devices: list[str] = []
        for name in claims:
            claim = self.server.view(RESOURCE_CLAIMS).get(Key(pod["metadata"]["namespace"], name))
            reserved = claim["status"].get("reservedFor", ()) if claim else ()
            if claim is None or pod["metadata"]["uid"] not in [each["uid"] for each in reserved]:
                return inf  # ContainerCreating, until the claim is there
            devices += [device for _, device in allocated(claim)]
        if set(devices) & held:
            return self.time + 1  # the driver waits for whoever is still being stopped
        if wanted > len(free) or self.chance.random() < self.refusals:
            words = (
                f"Allocate failed due to requested number of devices unavailable for {GPU_RESOURCE}. "
                f"Requested: {wanted}, Available: {len(free)}, which is unexpected"
            )
            status = {**pod["status"], "phase": "Failed", "reason": "UnexpectedAdmissionError", "message": words}
            self.server.amend(PODS, key_of(pod), status=status)
            return inf
        slow_s = 60.0 if self.chance.random() < 0.03 else 4.0  # an image that is not there yet
        run = _Run(pod, (*devices, *free[:wanted]), self.time + self.chance.uniform(0.2, slow_s))
        run.member = self._sidecars.member(pod, self)
        self.runs[pod["metadata"]["uid"]] = run
        return run.starts_at

    def _went_on(self, run: _Run, pod: JsonObject) -> float:
        """When to look at it again."""
        if run.member is not None:
            run.member.pod = pod
        if "deletionTimestamp" in pod["metadata"]:
            return self._let_go(run, pod)
        if pod["spec"].get("activeDeadlineSeconds") == STOPPED_AFTER_S and run.is_started:
            return self._end(run, pod)
        if not run.is_started:
            if self.time < run.starts_at:
                return run.starts_at
            run.is_started = True
            if run.member is not None and not self._sidecars.begin(run.member):
                self._say(pod, "Pending", {"running": {}}, {"waiting": {"reason": "PodInitializing"}})
            else:
                self._train(run, pod)
        if not _trains(pod):
            return inf
        if not run.is_training:
            return self._wait(run, pod)
        if run.member is not None and run.member.act in (Act.RESET, Act.LEAVE):
            return self._reset(run, pod, *self.chance.choice([(None, False), (143, True)]))
        ends_at = self._training.ends_at(pod, run.number)
        if self.time < ends_at:
            return ends_at
        code = self._training.end(pod, run.number)
        if run.member is not None and not run.member.settings.is_final(code):
            return self._reset(run, pod, code, False)
        self._stop(self.runs.pop(pod["metadata"]["uid"]), is_over=True)
        self._finish(pod, code, "Completed" if code == 0 else "Error")
        return inf

    def _train(self, run: _Run, pod: JsonObject) -> None:
        """All containers of a Pod run."""
        run.is_training = True
        barrier = None
        if run.member is not None:
            run.member.act = None
            ended = {"exitCode": 0, "reason": "Completed", "finishedAt": self.server.stamp()}
            barrier = {"terminated": {**ended, "message": json.dumps(run.member.report)}}
        self._say(pod, "Running", barrier, {"running": {}})
        if _trains(pod):
            size = None if run.member is None else self._sidecars.size_of(run.member)
            self._training.start(pod, self.time, run.number, size)
        self._sidecars.wake()

    def _wait(self, run: _Run, pod: JsonObject) -> float:
        """Its barrier waits for the gang."""
        member = run.member
        assert member is not None
        if member.act is Act.LET_GO:
            self._train(run, pod)
            return self.time
        gives_up_at = member.waits_since + GIVES_UP_S
        if member.act is not Act.GIVE_UP and self.time < gives_up_at:
            return gives_up_at
        why = json.dumps({"run": None, "why": LOST if member.act is Act.GIVE_UP else LATE})
        failed = {"exitCode": 1, "reason": "Error", "message": why, "finishedAt": self.server.stamp()}
        self._stop(self.runs.pop(pod["metadata"]["uid"]))
        self._say(pod, "Failed", {"terminated": failed}, {"waiting": {"reason": "PodInitializing"}})
        return inf

    def _reset(self, run: _Run, pod: JsonObject, code: int | None, was_told: bool) -> float:
        """All containers of the Pod end, and start again."""
        assert run.member is not None
        self._training.stop(pod, run.number)
        self._sidecars.stop(run.member, code=code, was_told=was_told)
        run.is_started = run.is_training = False
        run.starts_at = self.time + self.chance.uniform(1.0, 4.0)
        waiting = {"waiting": {"reason": "PodInitializing"}}
        self._say(pod, "Pending", waiting, waiting)
        return run.starts_at

    def _say(self, pod: JsonObject, phase: str, barrier: JsonObject | None, others: JsonObject) -> None:
        """The status of a Pod whose containers are in this state, and its barrier in that."""
        states = [{"name": each["name"], "state": others} for each in pod["spec"]["containers"]]
        status = {**pod["status"], "phase": phase, "containerStatuses": states}
        if barrier is not None:
            status["initContainerStatuses"] = [{"name": BARRIER_CONTAINER, "state": barrier}]
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        self.server.amend(PODS, key_of(pod), status=with_condition(status, ready))

    def _end(self, run: _Run, pod: JsonObject) -> float:
        """It was active for longer than it may be: its containers end, and the Pod stays."""
        self._leave(run)
        if run.stops_at is None:
            run.stops_at = self.time + self.chance.choice([0.05, 1.0, 1.0, GRACE_S])
        if self.time < run.stops_at:
            return run.stops_at
        self._stop(self.runs.pop(pod["metadata"]["uid"]))
        self._finish(pod, 143, "Error", ended="DeadlineExceeded")
        return inf

    def _let_go(self, run: _Run, pod: JsonObject) -> float:
        key = key_of(pod)
        self._leave(run)
        if run.stops_at is None:
            grace_s = pod["metadata"].get("deletionGracePeriodSeconds", GRACE_S)
            takes_s = self.chance.choice([0.05, 1.0, 1.0, grace_s]) if run.is_started else 0.05
            run.stops_at = self.time + takes_s
        if self.time < run.stops_at:
            return run.stops_at
        if run.is_started and not run.is_reported and self.chance.random() < 0.5:
            run.is_reported = True
            self._finish(pod, 143, "Error")
            return self.time + self.chance.uniform(0.05, 1.0)
        self._stop(self.runs.pop(pod["metadata"]["uid"]))
        self.server.remove(PODS, key)
        return inf

    def _finish(self, pod: JsonObject, code: int, reason: str, *, ended: str = "") -> None:
        """`ended`: why the kubelet has ended the Pod as a whole."""
        key = key_of(pod)
        if pod["status"]["phase"] in FINISHED:
            return
        terminated = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": self.server.stamp()}}
        state = [{"name": each["name"], "state": terminated} for each in pod["spec"]["containers"]]
        phase = "Failed" if code else "Succeeded"
        status = {**pod["status"], "phase": phase, "containerStatuses": state, **({"reason": ended} if ended else {})}
        self.server.amend(PODS, key, status=status)

    def _leave(self, run: _Run) -> None:
        if run.member is not None:
            self._sidecars.leave(run.member)

    def _stop(self, run: _Run, *, is_over: bool = False) -> None:
        if run.is_training and _trains(run.pod):
            self._training.stop(run.pod, run.number)
        if run.member is not None:
            self._sidecars.end(run.member, is_over=is_over)


def _trains(pod: JsonObject) -> bool:
    return JOB_LABEL in (pod["metadata"].get("labels") or {})
