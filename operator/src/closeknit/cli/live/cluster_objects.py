"""A cluster that a command asks, as kubectl would reach it: for objects, and for what it would say to new ones."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from closeknit.api.names import GROUP, Role
from closeknit.api.objects import TrainingJob
from closeknit.api.text.printable import printable
from closeknit.cli.input import cluster_file
from closeknit.cli.input.given import Reach
from closeknit.cli.input.manifest import Manifest
from closeknit.cli.live.cluster_connection import no_planner, not_there, reached
from closeknit.cli.plan.plan_decision import Placed, PlanRefused, Sitting, decided, not_taken, placed
from closeknit.cli.plan.supposed import NOTHING, Supposed
from closeknit.cluster.store.watched_kinds import BY_STREAM, KINDS, ClusterObject, Kind, Stream
from closeknit.kube.api import Resource
from closeknit.kube.errors import AlreadyExists, Forbidden, Invalid, NotFound
from closeknit.kube.http.http_api import HttpApi
from closeknit.launch.manifests.pod_manifest import pods

NOT_LOOKED_FOR = "whether the images, claims, ConfigMaps and Secrets that its Pods name are there"
NO_CLUSTER = "the server of the kubeconfig serves no Nodes, as every API server does: is its URL that of a cluster?"
_ADDED = "IPC_LOCK"


@asynccontextmanager
async def asking(reach: Reach, *, missing: str) -> AsyncGenerator[HttpApi, None]:
    """The way to the cluster. Raises NotThere for whatever keeps us from it or from reading what it answers; `missing`
    says what it means that something does not exist."""
    async with reached(reach, missing=missing) as api:
        try:
            yield api
        except ValidationError as error:
            raise not_there(f"a {error.title} cannot be read", error) from None


def resource_of(kind: Kind) -> Resource:
    """Where its objects are."""
    return Resource(kind.group, kind.version, kind.plural, namespaced=kind.namespaced)


async def all_of(api: HttpApi, kind: Kind, field_selector: str | None = None) -> AsyncIterator[ClusterObject | None]:
    """Every object of a kind, in all namespaces, as the operator reads it; None for one of no interest."""
    token: str | None = None
    selector = field_selector or kind.field_selector
    while True:
        page = await api.list(
            resource_of(kind), continue_token=token, field_selector=selector, label_selector=kind.label_selector
        )
        for item in page.items:
            yield kind.decode(item)
        token = page.continue_token
        if token is None:
            return


async def plan(file: Path, reach: Reach, clock: datetime, supposed: Supposed = NOTHING) -> Placed | PlanRefused:
    """The decision on the job of a file in a running cluster, which is also asked whether it would take the job and one
    Pod of each role. Raises BadInput and NotThere."""
    return await plan_of(cluster_file.training_job(file, reach.namespace), reach, clock, supposed)


async def plan_of(
    written: cluster_file.JobFile, reach: Reach, clock: datetime, supposed: Supposed = NOTHING
) -> Placed | PlanRefused:
    """The same of a job that was read already. Raises NotThere."""
    async with asking(reach, missing=NO_CLUSTER) as api:
        if written.job.metadata.namespace is None:
            written = written.inside(api.namespace)
        found: list[ClusterObject] = []
        for kind in KINDS:
            # A kind of a newer Kubernetes, which roles leave out, or ours where closeknit is not installed. A
            # server without Nodes is no API server, and knows no GPUs.
            may_lack = (NotFound,) if kind.group else ()
            with suppress(*may_lack, *((Forbidden,) if kind.may_be_unserved else ())):
                try:
                    found += [each async for each in all_of(api, kind) if each is not None]
                except Forbidden as error:
                    if kind.may_be_unserved:
                        raise
                    raise no_planner(error) from None
        sitting = decided(written.job, found, clock, is_live=True, supposed=supposed)
        if isinstance(sitting, PlanRefused):
            return sitting
        refused, unchecked = await _asked_to_take(api, written, sitting)
        if refused is not None and _ADDED in refused:  # by us, where that is admitted: the operator then leaves it out
            sitting = replace(sitting, ipc_lock=False)
            refused, unchecked = await _asked_to_take(api, written, sitting)
    if refused is not None:
        return replace(not_taken(written.job, refused, sitting.cluster, clock), booked=sitting.booked)
    answer = placed(sitting)
    return replace(answer, unchecked=(*answer.unchecked, *unchecked, NOT_LOOKED_FOR))


async def _asked_to_take(
    api: HttpApi, written: cluster_file.JobFile, sitting: Sitting
) -> tuple[str | None, tuple[str, ...]]:
    """In what words the API server refuses the job or a Pod of it, by dry runs; and what it was not asked, with why."""
    namespace = written.job.key.namespace
    wanted: list[tuple[str, Resource, dict[str, Any]]] = [
        ("TrainingJob", resource_of(BY_STREAM[Stream.TRAINING_JOBS]), _as_new(written.manifest, written.job))
    ]
    wanted += [("Pod", resource_of(BY_STREAM[Stream.OTHER_PODS]), body) for body in _pods(sitting)]
    unchecked: dict[str, None] = {}
    for what, resource, body in wanted:
        if not await _may_create(api, resource, namespace):
            words = f"what the API server says to its {what}, for you may not create {resource.plural} in {namespace}"
            unchecked[words] = None
            continue
        try:
            await api.create(resource, body, namespace=namespace, dry_run=True)
        except AlreadyExists:  # which is looked at last
            continue
        except (Invalid, Forbidden, NotFound) as error:
            return printable(f"the API server refuses its {what}: {' '.join(str(error).split())}"), ()
    return None, tuple(unchecked)


async def _may_create(api: HttpApi, resource: Resource, namespace: str) -> bool:
    asked = {"namespace": namespace, "verb": "create", "group": resource.group, "resource": resource.plural}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    answer = await api.create(_REVIEWS, review)
    return bool(answer.get("status", {}).get("allowed"))


_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)


def _as_new(manifest: Manifest, job: TrainingJob) -> dict[str, Any]:
    """The job as somebody would create it, whatever an API server has added to it elsewhere."""
    kept = {
        key: manifest.body["metadata"][key] for key in ("labels", "annotations") if key in manifest.body["metadata"]
    }
    metadata = {"name": job.metadata.name, "namespace": job.key.namespace, **kept}
    return {**{key: manifest.body[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata}


def _pods(sitting: Sitting) -> list[dict[str, Any]]:
    """One Pod of each role, as the operator makes it but for what it alone may write, and for the owner, which is not
    there yet."""
    made = sitting.gang()
    if made is None:
        return []
    first = {
        role: next((each for each, member in enumerate(made.members) if member.role is role), None) for role in Role
    }
    found = []
    for body in pods(made, [index for index in first.values() if index is not None]):
        metadata = {key: value for key, value in body["metadata"].items() if key != "ownerReferences"}
        for field in ("labels", "annotations"):
            if field in metadata:
                metadata[field] = _without_ours(metadata[field])
        found.append({**body, "metadata": metadata})
    return found


def _without_ours(entries: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in entries.items() if not key.startswith(f"{GROUP}/")}
