"""Writes a Plan: probes, status by compare-and-swap, actions, Event. The only place of the operator that writes."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from closeknit.api.names import API_VERSION, ATTEMPT_LABEL, JOB_LABEL, TRAINING_JOB, PendingReason, service_name
from closeknit.api.objects import TrainingJob
from closeknit.cluster.job import job_from_builtins
from closeknit.cluster.kinds import Stream
from closeknit.controller.metrics import Metrics
from closeknit.controller.resources import BY_KIND, EVENTS, PODS, SERVICES, TRAINING_JOBS
from closeknit.kube.api import Api, JsonObject, Resource
from closeknit.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Transient, Unauthorized
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.answers import Answers, Refusal, Refused
from closeknit.lifecycle.plan import (
    Action,
    CreateClaim,
    CreatePod,
    CreateService,
    DeletePod,
    DeleteService,
    Notice,
    Plan,
    ReleasePod,
)

CONTROLLER = "closeknit.dev/operator"
IN_FLIGHT = 16  # more writes at once make the API server cut our own watches (docs: operator reference, caches)
# Nothing is wrong with what was sent: the same decision may be right a moment later.
_UNDOING = DeletePod | DeleteService
_RETRIED = (Transient, Conflict, Unauthorized)

_Why = tuple[PendingReason, str]

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """What became of a Plan."""

    answers: Answers
    stored: TrainingJob | None = None
    """The job after the status was stored; None where there was none to store, or it was not stored."""
    versions: dict[Stream, str] = field(default_factory=dict)
    """The newest resourceVersion of each stream that we wrote to."""
    deleted: list[tuple[str, str]] = field(default_factory=list)
    """Pods whose deletion was asked for, as (name, uid)."""
    error: ApiError | None = None
    """Why the Plan was not written to its end, and is to be decided again."""

    def saw(self, source: Stream, stored: JsonObject) -> None:
        """Remembers the version of something written."""
        version = str(stored.get("metadata", {}).get("resourceVersion", ""))
        known = self.versions.get(source, "")
        if version.isdecimal() and (not known or int(version) > int(known)):
            self.versions[source] = version


class Writes:
    """Applies Plans, at most IN_FLIGHT writes at a time over all of them."""

    def __init__(self, api: Api, metrics: Metrics, now: Callable[[], datetime], instance: str) -> None:
        self._api = api
        self._metrics = metrics
        self._now = now
        self._instance = instance
        self._slots = asyncio.Semaphore(IN_FLIGHT)

    async def apply(self, plan: Plan, generation: int, answers: Answers) -> Outcome:
        """Writes the Plan as far as the API server lets it. Never raises an ApiError: `error` has it."""
        outcome = Outcome(answers)
        try:
            if not await self._probed(plan, generation, outcome):
                return outcome
            if plan.status is not None:
                await self._store(plan, outcome)
            writes = [self._act(plan, generation, action, outcome) for action in plan.actions]
            if plan.notice is not None:
                writes.append(self._tell(plan, plan.notice))
            # Every one is waited for: what is still under way after a failure would meet the next Plan.
            for failure in await asyncio.gather(*writes, return_exceptions=True):
                if failure is not None:
                    raise failure
        except ApiError as error:
            outcome.error = error
        return outcome

    async def _probed(self, plan: Plan, generation: int, outcome: Outcome) -> bool:
        """Whether the API server would accept what the Plan is about to create."""
        for manifest in plan.probes:
            try:
                await self._create(manifest, dry_run=True)
            except AlreadyExists:
                there = await self._of_that_name(manifest)
                if plan.uid in owner_uids(there) or is_left_over(there, manifest):
                    raise  # our own, not gone yet
                self._refuse(plan, generation, manifest, _taken(manifest, there), Refused.PROBE, outcome)
                return False
            except _RETRIED:
                raise
            except ApiError as error:
                if plan.adds_ipc_lock and isinstance(error, Forbidden) and "IPC_LOCK" in error.message:
                    outcome.answers = replace(outcome.answers, ipc_lock_refused=True)
                else:
                    self._refuse(plan, generation, manifest, _words(manifest, error), Refused.PROBE, outcome)
                return False
        return True

    async def _store(self, plan: Plan, outcome: Outcome) -> None:
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
        stored = await self._counted("update", TRAINING_JOBS, put)
        outcome.saw(Stream.TRAINING_JOBS, stored)
        job = job_from_builtins(stored)
        outcome.stored = job if isinstance(job, TrainingJob) else None
        if plan.status.placement is not None and plan.status.pending is None:
            outcome.answers = replace(outcome.answers, refusal=None)

    async def _act(self, plan: Plan, generation: int, action: Action, outcome: Outcome) -> None:
        async with self._slots:
            refusal = outcome.answers.refusal
            if refusal is not None and refusal.refused is Refused.CHILD and not isinstance(action, _UNDOING):
                return  # another child of this gang was refused: no more of it
            match action:
                case CreateService(manifest):
                    if await self._created(plan, generation, manifest, outcome) is not None:
                        outcome.answers = replace(outcome.answers, service_of=plan.attempt)
                case CreatePod(manifest):
                    if (pod := await self._created(plan, generation, manifest, outcome)) is not None:
                        outcome.saw(Stream.CHILD_PODS, pod)
                case CreateClaim(manifest):
                    if (claim := await self._created(plan, generation, manifest, outcome)) is not None:
                        outcome.saw(Stream.RESOURCE_CLAIMS, claim)
                        self._released(plan, outcome)
                case ReleasePod(name, patch):
                    patched = self._api.json_patch(PODS, name, patch, namespace=plan.job.namespace)
                    outcome.saw(Stream.CHILD_PODS, await self._counted("patch", PODS, patched))
                    self._released(plan, outcome)
                case DeletePod(name, uid):
                    deleted = self._api.delete(PODS, name, uid=uid, namespace=plan.job.namespace)
                    await self._counted("delete", PODS, deleted)
                    outcome.deleted.append((name, uid))
                case DeleteService(name):
                    if name == service_name(plan.job.name, outcome.answers.service_of):
                        outcome.answers = replace(outcome.answers, service_of=0)  # the attempt may begin again
                    await self._delete_service(plan, name)

    def _released(self, plan: Plan, outcome: Outcome) -> None:
        refusal = outcome.answers.refusal
        if refusal is not None and refusal.refused is Refused.CHILD:
            return  # another child was refused meanwhile
        outcome.answers = replace(outcome.answers, released=plan.attempt, released_at=self._now(), refusals=0)

    async def _created(self, plan: Plan, generation: int, manifest: Manifest, outcome: Outcome) -> JsonObject | None:
        """The child, made now or before; None where it is refused for good."""
        try:
            return await self._create(manifest)
        except AlreadyExists:
            there = await self._of_that_name(manifest)
            if is_same_child(there, manifest):
                return there
            if is_left_over(there, manifest):
                raise
            self._refuse(plan, generation, manifest, _taken(manifest, there), Refused.CHILD, outcome)
        except _RETRIED:
            raise
        except ApiError as error:
            self._refuse(plan, generation, manifest, _words(manifest, error), Refused.CHILD, outcome)
        return None

    async def _create(self, manifest: Manifest, *, dry_run: bool = False) -> JsonObject:
        resource = BY_KIND[manifest["kind"]]
        namespace = manifest["metadata"]["namespace"]
        creation = self._api.create(resource, manifest, namespace=namespace, dry_run=dry_run)
        return await self._counted("dry-run" if dry_run else "create", resource, creation)

    async def _of_that_name(self, manifest: Manifest) -> JsonObject:
        metadata = manifest["metadata"]
        return await self._api.get(BY_KIND[manifest["kind"]], metadata["name"], namespace=metadata["namespace"])

    async def _delete_service(self, plan: Plan, name: str) -> None:
        try:
            service = await self._api.get(SERVICES, name, namespace=plan.job.namespace)
        except NotFound:
            return
        if plan.uid in owner_uids(service):
            uid = service["metadata"]["uid"]
            await self._counted(
                "delete", SERVICES, self._api.delete(SERVICES, name, uid=uid, namespace=plan.job.namespace)
            )

    def _refuse(
        self, plan: Plan, generation: int, manifest: Manifest, why: _Why, refused: Refused, outcome: Outcome
    ) -> None:
        """Remembers the refusal of one create: of several children of a gang the first, which counts as one."""
        before = outcome.answers.refusal
        if before is not None and before.refused is refused is Refused.CHILD:
            return
        tries = outcome.answers.refusals + 1
        refusal = Refusal(*why, refused, manifest, generation, plan.attempt, self._now(), tries)
        outcome.answers = replace(outcome.answers, refusal=refusal, refusals=tries)
        if refused is Refused.CHILD:  # all of this attempt is taken back, and it begins again under its number
            outcome.answers = replace(outcome.answers, released=0, released_at=None)

    async def _tell(self, plan: Plan, notice: Notice) -> None:
        """Sends the Event. One that gets lost is not sent again: the status has it all."""
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": "Event",
            "metadata": {"name": notice.name, "namespace": plan.job.namespace},
            "eventTime": self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "type": "Warning" if notice.warning else "Normal",
            "reason": notice.reason,
            "action": notice.action,
            "note": notice.note,
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": TRAINING_JOB,
                "name": plan.job.name,
                "namespace": plan.job.namespace,
                "uid": plan.uid,
            },
        }
        try:
            async with self._slots:
                await self._counted("create", EVENTS, self._api.create(EVENTS, body, namespace=plan.job.namespace))
        except AlreadyExists:
            pass  # told before a restart, or before the state went to and fro
        except ApiError as error:
            _log.warning("an Event was not stored", extra={"job": plan.job, "reason": notice.reason, "error": error})

    async def _counted(self, verb: str, resource: Resource, call: Coroutine[Any, Any, T]) -> T:
        code = "ok"
        try:
            return await call
        except ApiError as error:
            code = error.reason or type(error).__name__
            raise
        finally:
            self._metrics.api_writes.labels(verb, str(resource), code).inc()


def owner_uids(stored: JsonObject) -> list[str]:
    """UIDs of an object's owners."""
    return [str(owner.get("uid")) for owner in stored["metadata"].get("ownerReferences") or ()]


def is_same_child(there: JsonObject, wanted: Manifest) -> bool:
    """Whether what has the name is the child that was wanted: of the same owner and attempt."""
    labels = there["metadata"].get("labels") or {}
    return (
        owner_uids(there) == owner_uids(wanted)
        and labels.get(ATTEMPT_LABEL) == wanted["metadata"]["labels"][ATTEMPT_LABEL]
    )


def is_left_over(there: JsonObject, wanted: Manifest) -> bool:
    """Whether what has the name is the claim of a Pod of ours that had it before, and is about to be collected."""
    labels = there["metadata"].get("labels") or {}
    owners = [(owner["kind"], owner["name"]) for owner in there["metadata"].get("ownerReferences") or ()]
    is_ours = labels.get(JOB_LABEL) == wanted["metadata"]["labels"][JOB_LABEL]
    return is_ours and owners == [("Pod", wanted["metadata"]["name"])]


def _taken(manifest: Manifest, there: JsonObject) -> _Why:
    owners = there["metadata"].get("ownerReferences") or ()
    owner = f"{owners[0]['kind']} {owners[0]['name']} (uid {owners[0]['uid']})" if owners else "nobody that it names"
    advice = "delete it, or delete this job and give it another name"
    return PendingReason.NAME_CONFLICT, f"{_title(manifest)} exists and belongs to {owner}; {advice}"


def _words(manifest: Manifest, error: ApiError) -> _Why:
    return PendingReason.TEMPLATE_INVALID, f"the API server refuses {_title(manifest)}: {error.message}"


def _title(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
