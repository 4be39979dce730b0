"""Writes a Plan: reads quotas, sends probes, status by compare-and-swap, opening, actions, Event.

It tells what happened, and learns nothing of it.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from closeknit.api.names import API_VERSION, ATTEMPT_LABEL, INDEX_LABEL, ROLE_LABEL, SIZE_ANNOTATION, TRAINING_JOB
from closeknit.cluster.objects.meta import Owner
from closeknit.cluster.pods.pod import STOPPED_AFTER_S
from closeknit.controller.writes.denial import denial
from closeknit.controller.writes.disruption import disruption_patch
from closeknit.controller.writes.event_recorder import EventRecorder
from closeknit.controller.writes.resources import (
    BY_KIND,
    PODS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    TRAINING_JOBS,
)
from closeknit.controller.writes.rights import may
from closeknit.controller.writes.ssh_key_pair import with_key_pair
from closeknit.controller.writes.write_slots import IN_FLIGHT, WriteSlots
from closeknit.kube.api import JsonObject
from closeknit.kube.errors import AlreadyExists, ApiError, Invalid, NotFound
from closeknit.launch.gang import Manifest
from closeknit.launch.manifests.owner import owned
from closeknit.lifecycle.writes.child_kinds import CHILD_KINDS
from closeknit.lifecycle.writes.plan import Action, Create, Delete, Notice, Plan, Resize, Stop
from closeknit.lifecycle.writes.quota_demand import AdmittedPod, QuotaDemand, admitted_pod, as_admitted
from closeknit.lifecycle.writes.resource_quotas import quotas
from closeknit.lifecycle.writes.results import (
    ChildRefused,
    Created,
    Deleted,
    DenialKind,
    Exists,
    Failed,
    Judgement,
    Quotas,
    Result,
    ServiceAccount,
    StatusStored,
    Stopped,
    Unseen,
    asked_of_quota,
    changed,
    is_by_quota,
    judged,
    may_leave_more,
    tried_again,
)

# What only tells jobs why they wait takes so many slots: hundreds that are submitted at once are told in a second or
# two, and meanwhile whatever gangs need goes on by the others.
WORDS_IN_FLIGHT = 4
# So many Pods of a gang of more are ahead of the claims that they own; in smaller ones claims follow at once. A garbage
# collector that hears of a claim before it has heard of the Pod, by another watch, reads that Pod, and its TrainingJob
# with the places of all ranks: for some 400 of 512 Pods where claims follow at once, for none with so many ahead
# (decision 0006).
PODS_AHEAD = 96

_ATTEMPT = ATTEMPT_LABEL.replace("/", "~1")  # as a part of a JSON pointer
_SIZE = SIZE_ANNOTATION.replace("/", "~1")  # likewise

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Told:
    """What became of the writes of one Plan so far."""

    plan: Plan
    results: list[Result] = field(default_factory=list)
    is_refused: bool = False
    """Whether one of them was refused for good: asked before each child of a gang."""
    may_delete: bool | None = None
    """Whether RBAC lets us delete Pods there; None while that was not asked."""
    may_mark: bool = True
    """Whether no Pod of it was refused its condition: the others would be refused it alike."""
    owed: deque[Manifest] = field(default_factory=deque)
    """What children own that are made, and what is still to be made itself, the oldest first."""
    quotas: Quotas | None = None
    """Of the job's namespace, beside what is sent of the gang."""
    admitted: dict[tuple[str, str], AdmittedPod] = field(default_factory=dict)
    """What admission made of Pods, by their role and their index within it."""

    def add(self, result: Result) -> Judgement:
        """Takes the next one, and tells what it means for the rest of the Plan."""
        judgement = judged(result, self.plan.uid)
        self.is_refused = self.is_refused or judgement is Judgement.REFUSED
        self.results.append(result)
        if isinstance(result, Created) and result.admitted is not None:
            self.add_pod(result.admitted)
        return judgement

    def add_pod(self, admitted: AdmittedPod) -> None:
        """Takes in what admission makes of a Pod."""
        self.admitted[admitted.role, admitted.index] = admitted

    @property
    def whole(self) -> Quotas | None:
        """The quotas beside what the gang asks as admission makes its Pods; None where they leave enough."""
        if self.quotas is None or self.plan.demand is None:
            return None
        found = replace(self.quotas, demand=as_admitted(self.plan.demand, self.admitted.values()))
        return None if judged(found, self.plan.uid) is Judgement.DONE else found

    @property
    def second(self) -> Manifest | None:
        """Another Pod to be made of a role that has shown one alone: that one may get something of its own."""
        shown = Counter(role for role, _ in self.admitted)
        made = (each.manifest for each in self.plan.actions if isinstance(each, Create))
        for pod in (each for each in made if each["kind"] == "Pod"):
            labels = pod["metadata"]["labels"]
            role, index = labels[ROLE_LABEL], labels[INDEX_LABEL]
            if shown[role] == 1 and (role, index) not in self.admitted:
                return pod
        return None


class Writes:
    """Applies Plans, at most IN_FLIGHT calls at a time over all of them."""

    def __init__(self, slots: WriteSlots, now: Callable[[], datetime], instance: str) -> None:
        self._slots, self._api = slots, slots.api
        self._events = EventRecorder(slots, now, instance)
        self._now = now
        self._words = asyncio.Semaphore(WORDS_IN_FLIGHT)

    async def apply(self, plan: Plan) -> Sequence[Result]:
        """Writes the Plan as far as the API server lets it, and tells what became of each write. Raises no ApiError."""
        async with self._words if plan.telling is not None else nullcontext():
            return await self._applied(plan)

    async def _applied(self, plan: Plan) -> Sequence[Result]:
        told = _Told(plan)
        if not await self._is_taken(told):
            return told.results
        if plan.status is not None and told.add(await self._stored(plan)) is not Judgement.DONE:
            return told.results
        opened = await self._opened(told)
        if opened is Judgement.REFUSED:
            return told.results
        actions = plan.actions if opened is Judgement.DONE else ()
        left = iter(actions)
        writes = [self._act_on(left, told) for _ in range(min(IN_FLIGHT, len(actions)))]
        if plan.notice is not None:
            writes.append(self._tell(plan, plan.notice))
        # Every one is waited for: what is still under way after a failure would meet the next Plan.
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        return told.results

    async def version(self, kind: str, namespace: str, name: str) -> str:
        """The resourceVersion that a job, or a child of one, has now; empty where it is gone. Raises ApiError."""
        resource = TRAINING_JOBS if kind == TRAINING_JOB else BY_KIND[kind]
        async with self._slots.free:
            try:
                found = await self._api.get(resource, name, namespace=namespace)
            except NotFound:
                return ""
        return _version(found)

    async def _is_taken(self, told: _Told) -> bool:
        """Whether the quotas leave enough for the whole gang, and the API server takes it."""
        plan = told.plan
        read = told.quotas = None if plan.demand is None else await self._quotas(plan, plan.demand)
        if read is not None and not plan.tells_quotas_last and told.add(read) is not Judgement.DONE:
            return False
        is_taken = await self._passes_trial(read, told)
        if read is not None and plan.tells_quotas_last and (is_taken or told.is_refused):
            is_taken = told.add(read) is Judgement.DONE and is_taken
        return is_taken and await self._are_quotas_enough(told) is Judgement.DONE

    async def _are_quotas_enough(self, told: _Told) -> Judgement:
        """Whether the quotas leave enough for the gang as admission makes its Pods."""
        while told.whole is not None and (second := told.second) is not None:
            async with self._slots.free:
                probed, _ = await self._tried(second, told, is_probe=True)
            if judged(probed, told.plan.uid) is not Judgement.DONE:
                break
            told.add(probed)
        return Judgement.DONE if told.whole is None else told.add(told.whole)

    async def _passes_trial(self, read: Quotas | None, told: _Told) -> bool:
        """Whether the API server takes its account, and what is tried of it. That a quota refuses this is no news where
        that quota, as it was `read`, has too little left, or will have more once those are gone that make room."""
        plan = told.plan
        if plan.account and told.add(await self._account(plan)) is not Judgement.DONE:
            return False
        is_short = read is not None and judged(read, plan.uid) is not Judgement.DONE
        for manifest in plan.probes:
            async with self._slots.free:
                probed, _ = await self._tried(manifest, told, is_probe=True)
            if is_by_quota(probed) and (is_short or may_leave_more(probed, plan.demand, read)):
                if isinstance(probed, ChildRefused) and (asked := asked_of_quota(probed, plan.admitted)) is not None:
                    told.add_pod(asked)
                continue
            if told.add(probed) is not Judgement.DONE:
                return False
        return True

    async def _quotas(self, plan: Plan, demand: QuotaDemand) -> Quotas | None:
        """The quotas of the job's namespace; None where they cannot be read, which keeps no job from starting: the
        creates will show."""
        async with self._slots.free:
            try:
                page = await self._api.list(RESOURCE_QUOTAS, namespace=plan.job.namespace)
            except ApiError as error:
                _log.info("quotas are not read", extra={"job": plan.job, "error": error})
                return None
        return Quotas(demand, quotas(page.items))

    async def _account(self, plan: Plan) -> ServiceAccount:
        async with self._slots.free:
            is_usable = await may(self._api, "use", SERVICE_ACCOUNTS, plan.job.namespace, plan.account)
        return ServiceAccount(plan.account, is_usable)

    async def _stored(self, plan: Plan) -> StatusStored | Failed:
        assert plan.status is not None  # noqa: S101 - the caller's promise, for the type checker
        body = {
            "apiVersion": API_VERSION,
            "kind": TRAINING_JOB,
            "metadata": {
                "name": plan.job.name,
                "namespace": plan.job.namespace,
                "uid": plan.uid,
                "resourceVersion": plan.resource_version,
            },
            "status": plan.status.wire(),
        }
        put = self._api.put_status(TRAINING_JOBS, plan.job.name, body, namespace=plan.job.namespace)
        try:
            stored = await self._slots.sent("update", TRAINING_JOBS, put)
        except ApiError as error:
            return Failed(None, denial(error))
        return StatusStored(stored.resourceVersion)

    async def _opened(self, told: _Told) -> Judgement:
        """One after the other, each with what it owns, up to the first that is not made."""
        for creation in told.plan.opening:
            if (judgement := await self._act(creation, told)) is not Judgement.DONE:
                return judgement
            if (judgement := await self._are_quotas_enough(told)) is not Judgement.DONE:
                return judgement
            while told.owed:
                if (judgement := await self._created(told.owed.popleft(), (), told)) is not Judgement.DONE:
                    return judgement
        return Judgement.DONE

    async def _act_on(self, left: Iterator[Action], told: _Told) -> None:
        """One action after the other, until others have taken the last: more at once would only wait for a slot."""
        for action in left:
            await self._act(action, told)
            if len(told.owed) > (PODS_AHEAD if len(told.plan.actions) > PODS_AHEAD else 0):
                await self._created(told.owed.popleft(), (), told)
        while told.owed:
            await self._created(told.owed.popleft(), (), told)

    async def _act(self, action: Action, told: _Told) -> Judgement:
        plan = told.plan
        match action:
            case Create():
                return await self._created(action.manifest, action.owns, told)
            case Delete(uid=uid, is_preempted=is_preempted):
                if uid is not None and is_preempted:
                    await self._marked(action.name, uid, told)
                return told.add(await self._deleted(plan, action, told))
            case Stop():
                if action.is_preempted:
                    await self._marked(action.name, action.uid, told)
                return told.add(await self._stopped(plan, action))
            case Resize():
                return told.add(await self._resized(plan, action))

    async def _created(self, manifest: Manifest, owns: Sequence[Manifest], told: _Told) -> Judgement:
        """Makes a child, and notes what it owns. Nothing is made where another child of this gang was refused
        meanwhile."""
        async with self._slots.free:
            if told.is_refused:
                return Judgement.REFUSED
            made, uid = await self._tried(manifest, told, is_probe=False)
        made = tried_again(made) if told.plan.is_quota_late else made
        judgement = told.add(made)
        if judgement is Judgement.DONE:
            told.owed.extend(owned(each, manifest, uid) for each in owns)
        return judgement

    async def _tried(self, manifest: Manifest, told: _Told, *, is_probe: bool) -> tuple[Result, str]:
        """What came of a create, and the uid of what has the name now."""
        plan, resource = told.plan, BY_KIND[manifest["kind"]]
        whole = manifest if manifest["kind"] != "Secret" or is_probe else with_key_pair(manifest)
        verb, namespace = "dry-run" if is_probe else "create", plan.job.namespace
        try:
            if manifest["kind"] == "Pod" and (is_probe or any(manifest is each.manifest for each in plan.opening)):
                # What changes one Pod of a gang on its way changes all: the whole is read of the first alone.
                there = await self._slots.counted(
                    verb, resource, self._api.create(resource, whole, namespace=namespace, dry_run=is_probe)
                )
                if (other := changed(manifest, there, plan.sets)) is not None:
                    return ChildRefused(manifest, other, is_probe), ""
                admitted = admitted_pod(manifest, there)
                return Created(manifest, _version(there), is_probe, admitted), _uid(there)
            made = await self._slots.counted(
                verb, resource, self._api.make(resource, whole, namespace=namespace, dry_run=is_probe)
            )
        except AlreadyExists:
            if CHILD_KINDS[manifest["kind"]].is_secret:
                return Unseen(manifest), ""
            return await self._found(plan, manifest, is_probe=is_probe)
        except ApiError as error:
            refused = denial(error)
            is_forbidden = refused.failure is DenialKind.FORBIDDEN
            if is_forbidden and not await may(self._api, "create", resource, plan.job.namespace):
                refused = replace(refused, failure=DenialKind.NO_RIGHT)
            return ChildRefused(manifest, refused, is_probe), ""
        return Created(manifest, made.resourceVersion, is_probe), made.uid

    async def _found(self, plan: Plan, manifest: Manifest, *, is_probe: bool) -> tuple[Result, str]:
        """What has the name, and its uid."""
        try:
            there = await self._api.get(
                BY_KIND[manifest["kind"]], manifest["metadata"]["name"], namespace=plan.job.namespace
            )
        except ApiError as error:  # gone meanwhile, perhaps
            return Failed(Create(manifest), denial(error)), ""
        metadata = there["metadata"]
        labels = tuple((metadata.get("labels") or {}).items())
        is_going = metadata.get("deletionTimestamp") is not None
        return Exists(manifest, _owners(there), labels, _version(there), is_probe, is_going), _uid(there)

    async def _marked(self, pod: str, uid: str, told: _Told) -> None:
        """Has a Pod say that its job makes room. It ends whether it says so or not."""
        if not told.may_mark:
            return
        namespace = told.plan.job.namespace
        patch = disruption_patch(uid, self._now())
        call = self._api.json_patch(PODS, pod, patch, namespace=namespace, subresource="status")
        try:
            await self._slots.sent("patch", PODS, call)
        except (NotFound, Invalid):  # it is gone, another one has its name, or it has said so by now
            return
        except ApiError as error:
            told.may_mark = False
            whose = f"{namespace}/{pod}"
            _log.info("a Pod does not say that it makes room", extra={"pod": whose, "error": error})

    async def _deleted(self, plan: Plan, action: Delete, told: _Told) -> Result:
        resource = TRAINING_JOBS if action.kind == TRAINING_JOB else BY_KIND[action.kind]
        namespace = plan.job.namespace
        uid = action.uid
        try:
            if uid is None:
                async with self._slots.free:
                    there = await self._api.get(resource, action.name, namespace=namespace)
                if not any(owner.is_job(plan.uid) for owner in _owners(there)):
                    return Deleted(action)
                uid = str(there["metadata"]["uid"])
            how = {"is_forced": True} if action.is_forced else {}
            sent = self._api.delete(resource, action.name, uid=uid, namespace=namespace, **how)
            await self._slots.sent("delete", resource, sent)
        except NotFound:
            pass
        except ApiError as error:
            refused = denial(error)
            if refused.failure is DenialKind.FORBIDDEN and told.may_delete is None:  # a gang's Pods are refused alike
                told.may_delete = await may(self._api, "delete", resource, namespace)
            if refused.failure is DenialKind.FORBIDDEN and not told.may_delete:
                refused = replace(refused, failure=DenialKind.NO_RIGHT)
            return Failed(action, refused)
        return Deleted(action)

    async def _stopped(self, plan: Plan, action: Stop) -> Result:
        changes: list[JsonObject] = [
            {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": STOPPED_AFTER_S},
        ]
        if action.is_replaced:
            changes.append({"op": "add", "path": f"/metadata/labels/{_ATTEMPT}", "value": ""})
        return await self._patched(plan, action, changes)

    async def _resized(self, plan: Plan, action: Resize) -> Result:
        change: JsonObject = {"op": "add", "path": f"/metadata/annotations/{_SIZE}", "value": action.size}
        return await self._patched(plan, action, [change])

    async def _patched(self, plan: Plan, action: Stop | Resize, changes: list[JsonObject]) -> Result:
        resource = BY_KIND["Pod"]
        patch: list[JsonObject] = [{"op": "test", "path": "/metadata/uid", "value": action.uid}, *changes]
        call = self._api.json_patch(resource, action.name, patch, namespace=plan.job.namespace)
        try:
            patched = await self._slots.sent("patch", resource, call)
        except NotFound:
            return Stopped(action)
        except Invalid as error:  # another one has its name, or a policy says no
            refused = await self._while_there(action.uid, action.name, plan.job.namespace, error)
            return Stopped(action) if refused is None else Failed(action, denial(refused))
        except ApiError as error:
            return Failed(action, denial(error))
        return Stopped(action, _version(patched))

    async def _while_there(self, uid: str, pod: str, namespace: str, error: ApiError) -> ApiError | None:
        """The error by which a Pod was not changed; None where that Pod is gone, so that it need not be."""
        try:
            async with self._slots.free:
                there = await self._api.get(PODS, pod, namespace=namespace)
        except NotFound:
            return None
        except ApiError as unread:
            return unread
        return error if there["metadata"]["uid"] == uid else None

    async def _tell(self, plan: Plan, notice: Notice) -> None:
        """Sends the Event. One that gets lost is not sent again: the status has it all."""
        regarding = {
            "apiVersion": API_VERSION,
            "kind": TRAINING_JOB,
            "name": plan.job.name,
            "namespace": plan.job.namespace,
            "uid": plan.uid,
        }
        await self._events.record(plan.job.namespace, regarding, notice)


def _version(stored: JsonObject) -> str:
    return str(stored.get("metadata", {}).get("resourceVersion", ""))


def _uid(stored: JsonObject) -> str:
    return str(stored.get("metadata", {}).get("uid", ""))


def _owners(stored: JsonObject) -> tuple[Owner, ...]:
    return msgspec.convert(stored["metadata"].get("ownerReferences") or (), tuple[Owner, ...])
