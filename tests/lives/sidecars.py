"""The sidecars of gangs that restart in place: the very rules of closeknit's own, without its sockets.

A meeting point and the members hear each other as their nodes' networks let them. What they are ordered their kubelets
carry out, each in its own time.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from closeknit.api.names import ATTEMPT_LABEL, BARRIER_CONTAINER, SIDECAR_CONTAINER, SIZE_ANNOTATION
from closeknit.cluster.pods.gang_runs import tellers
from closeknit.controller.writes.resources import PODS
from closeknit.kube.api import JsonObject
from closeknit.sidecar.barrier import GIVES_UP_S
from closeknit.sidecar.gang.hub import HEARD_FOR_S, Hub
from closeknit.sidecar.gang.member_state import Act, MemberState
from closeknit.sidecar.gang.participant import BEAT_S
from closeknit.sidecar.gang.protocol import Phase
from closeknit.sidecar.gang.settings import REPLACED_VARIABLE, VARIABLE, Settings
from lives.api_server import ApiServer, key_of
from lives.hand import Hand
from lives.scheduler import with_condition
from lives.training import Gang, gang_of

LOST = "a Pod of the gang is over, so that the others cannot begin again"
LATE = f"the gang has not come together in {GIVES_UP_S:.0f} s"


class Node(Protocol):
    """A kubelet and its node's network, as a sidecar knows them."""

    is_alive: bool
    """Whether the kubelet carries out what it is to do."""
    is_cut: bool
    """Whether nobody on other nodes is heard."""

    def wake(self) -> None:
        """Has the kubelet look at its Pods."""


@dataclass(eq=False)
class Member:
    """One Pod's sidecar, and what its emptyDir keeps."""

    pod: JsonObject
    """As its kubelet has seen it last."""
    node: Node
    settings: Settings
    state: MemberState
    hub: Hub | None = None
    """Of node rank 0, once it has met anybody."""
    is_up: bool = False
    """Whether its container runs."""
    unheard_since: float = 0.0
    """Since when the meeting point has not heard it; infinity while it does."""
    waits_since: float = 0.0
    act: Act | None = None
    """What its kubelet has to carry out."""
    is_lost: bool = False
    """Whether it was told that its gang cannot begin again."""
    ended: dict[str, Any] | None = None
    """How its trainer ended in the run before, by the wrapper."""

    @property
    def report(self) -> JsonObject:
        """What its barrier leaves when it lets its Pod go."""
        said: JsonObject = {"run": self.state.run}
        return said if self.ended is None else {**said, "ended": self.ended}


@dataclass
class _Gang:
    """Those of one attempt."""

    members: list[Member] = field(default_factory=list)
    over: set[int] = field(default_factory=set)
    """Indexes whose trainers have ended for good, and told so."""
    sizes: dict[int, int] = field(default_factory=dict)
    """How many members each run has."""


class Sidecars(Hand):
    """All of them."""

    name = "sidecars"
    pause_s = (0.1, 1.5)

    def __init__(self, server: ApiServer, chance: random.Random, complain: Callable[[str], None]) -> None:
        """`complain` is called with what must never be."""
        super().__init__(server, chance)
        self._complain = complain
        self._gangs: dict[Gang, _Gang] = {}

    def member(self, pod: JsonObject, node: Node) -> Member | None:
        """The sidecar of a new Pod; None where it has none."""
        barrier = next((each for each in pod["spec"].get("initContainers") or () if _is_barrier(each)), None)
        if barrier is None:
            return None
        told = {each["name"]: each["value"] for each in barrier["env"]}
        settings = Settings.parse(told[VARIABLE], told.get(REPLACED_VARIABLE, ""))
        member = Member(pod, node, settings, MemberState(settings.index, None, settings.replacement))
        self._gangs.setdefault(gang_of(pod), _Gang()).members.append(member)
        return member

    def run_of(self, gang: Gang) -> int | None:
        """The run that all members of a gang are in; None where they are in several, or there are none."""
        runs = {member.state.run for member in self._gangs[gang].members} if gang in self._gangs else set()
        return runs.pop() if len(runs) == 1 else None

    def size_of(self, member: Member) -> int:
        """How many members its run has."""
        return self._gangs[gang_of(member.pod)].sizes.get(member.state.run, member.settings.size)

    def begin(self, member: Member) -> bool:
        """Its containers start, for the first time or again. Whether the trainer may begin at once."""
        member.is_up, member.act = True, None
        is_let_go = member.state.barrier() is Act.LET_GO
        member.waits_since = self.time
        if member.is_lost and not is_let_go:
            member.act = Act.GIVE_UP
        self.wake()
        return is_let_go

    def stop(self, member: Member, *, code: int | None = None, was_told: bool = False) -> None:
        """All its containers end, to start again. `code`: the trainer's, where its wrapper has told it."""
        at = datetime.fromisoformat(self.server.stamp()).timestamp()
        member.ended = None if code is None else {"code": code, "at": at, "was_told": was_told, "words": ""}
        if code is not None and not was_told:
            member.state.trainer_ended(is_for_good=False)
            self._meet(gang_of(member.pod))
        member.is_up, member.unheard_since = False, self.time
        self.wake()

    def leave(self, member: Member) -> None:
        """Its Pod is told to go."""
        member.state.leaves()
        self.wake()

    def end(self, member: Member, *, is_over: bool = False) -> None:
        """Its Pod is no more. `is_over`: its trainer has ended for good, which it tells before."""
        gang = gang_of(member.pod)
        if is_over:
            member.state.trainer_ended(is_for_good=True)
            self._meet(gang)
            self._gangs[gang].over.add(member.settings.index)
        self._gangs[gang].members.remove(member)
        self.wake()

    def step(self) -> None:
        """Everybody reports, and is told what to do."""
        due = [self._meet(gang) for gang in list(self._gangs)]
        for gang in [each for each, found in self._gangs.items() if not found.members]:
            del self._gangs[gang]
        due += [self._show(gang) for gang in self._gangs.values()]
        if (soonest := min((each for each in due if each is not None), default=None)) is not None:
            self.wake_at(max(soonest, self.time + 0.1))

    def _meet(self, name: Gang) -> float | None:
        """When to do it again though nothing changes."""
        gang = self._gangs[name]
        meeting = self._meeting_point(gang)
        for member in gang.members:
            is_heard = meeting is not None and _reaches(member, meeting)
            member.unheard_since = float("inf") if is_heard else min(member.unheard_since, self.time)
        if meeting is None or not (hub := meeting.hub):
            return None
        if told := meeting.pod["metadata"].get("annotations", {}).get(SIZE_ANNOTATION):
            hub.resize(*map(int, told.split()))
        heard = [each for each in gang.members if _reaches(each, meeting) and each.settings.index < hub.size]
        for member in heard:
            hub.hear(member.state.report, self.time)
        if hub.release(self.time):
            gang.sizes[hub.run] = hub.size
            self._look(gang.members, hub)
        is_busy = hub.is_called
        for member in heard:
            report = member.state.report
            is_outlived = hub.is_outlived(report)
            order = hub.order_to_outlived(report) if is_outlived else hub.order(member.settings.index)
            act = member.state.obey(order)
            if act is not None and member.act is not act:
                self._obey(member, act)
            is_busy = is_busy or is_outlived or report.phase is not Phase.RUNNING
        return self.time + BEAT_S if is_busy else None

    def _obey(self, member: Member, act: Act) -> None:
        if act is Act.GIVE_UP:
            member.is_lost = True
            if member.state.phase is not Phase.WAITING:
                return
        member.act = act
        if act in (Act.RESET, Act.LEAVE):
            member.is_up, member.unheard_since = False, self.time  # the sidecar ends, and its kubelet sees that
        member.node.wake()

    def _look(self, members: Iterable[Member], hub: Hub) -> None:
        """A run begins: nobody who is of the gang trains on in an older one."""
        for member in members:
            report = member.state.report
            if report.phase is Phase.RUNNING and not hub.is_outlived(report):
                self._complain(f"run {hub.run} begins while Pod {key_of(member.pod)} is still in run {report.run}")

    def _meeting_point(self, gang: _Gang) -> Member | None:
        """Who has the host name of node rank 0, and hears others."""
        named = [
            member
            for member in gang.members
            if member.settings.is_meeting_point and (member.pod["metadata"]["labels"].get(ATTEMPT_LABEL))
        ]
        found = max(named, key=lambda member: member.settings.replacement, default=None)
        if found is None or not found.is_up:
            return None
        if found.hub is None:
            settings, run = found.settings, found.state.run
            found.hub = Hub(settings.size, run, self.time if run >= 0 else None, replaced=settings.replaced)
        return found

    def _show(self, gang: _Gang) -> float | None:
        """The kubelets' probes of the sidecars that tell whether the gang is whole. When to look again."""
        if not gang.members:
            return None
        meeting = self._meeting_point(gang)
        size = gang.members[0].settings.size if meeting is None or meeting.hub is None else meeting.hub.size
        since = {index: 0.0 for index in range(size) if index not in gang.over}
        for member in gang.members:
            index = member.settings.index
            since[index] = max(since.get(index, 0.0), member.unheard_since)
        last = min(since.values(), default=float("inf"))
        is_whole = meeting is not None and self.time - last < HEARD_FOR_S
        for member in gang.members:
            if member.settings.index in tellers(size) and member.node.is_alive and member.is_up:
                self._tell(member, is_ready=is_whole and meeting is not None and _reaches(member, meeting))
        is_waited_for = self.time - last < HEARD_FOR_S and last < float("inf")
        return last + HEARD_FOR_S + self.chance.uniform(0.1, 5.0) if is_waited_for else None

    def _tell(self, member: Member, *, is_ready: bool) -> None:
        key = key_of(member.pod)
        pod = self.server.view(PODS).get(key)
        if pod is None or pod["metadata"]["uid"] != member.pod["metadata"]["uid"]:
            return
        states = pod["status"].get("containerStatuses") or []
        sidecar = next((each for each in states if each["name"] == SIDECAR_CONTAINER), None)
        if sidecar is None or "running" not in sidecar["state"] or sidecar.get("ready", False) == is_ready:
            return
        told = [{**each, "ready": is_ready} if each is sidecar else each for each in states]
        ready = {"type": "Ready", "status": "True" if is_ready else "False"}
        if not is_ready:
            ready["message"] = f"containers with unready status: [{SIDECAR_CONTAINER}]"
        self.server.amend(PODS, key, status=with_condition({**pod["status"], "containerStatuses": told}, ready))


def _reaches(member: Member, meeting: Member) -> bool:
    return member.is_up and (member is meeting or not (member.node.is_cut or meeting.node.is_cut))


def _is_barrier(container: JsonObject) -> bool:
    return bool(container["name"] == BARRIER_CONTAINER)
