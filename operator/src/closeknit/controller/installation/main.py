"""`python -m closeknit.controller.installation.main`: prints what it finds of the installation in its own namespace."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from importlib.metadata import version

import msgspec

from closeknit.api.names import GROUP, VERSION
from closeknit.cluster.objects.agent_report import moment
from closeknit.controller.installation.finding import (
    TRIED,
    WATCHED_S,
    Finding,
    of_agents,
    of_judgement,
    of_kinds,
    of_leader,
)
from closeknit.kube.api import Api, Resource
from closeknit.kube.errors import ApiError, LoginError, NotFound
from closeknit.kube.http.http_api import HttpApi
from closeknit.kube.lease import LEASES, Lease, lease

TRAINING_JOBS = Resource(GROUP, VERSION, "trainingjobs")
NODE_TOPOLOGIES = Resource(GROUP, VERSION, "nodetopologies", namespaced=False)
KINDS = (TRAINING_JOBS, NODE_TOPOLOGIES, Resource(GROUP, VERSION, "clustertopologies", namespaced=False))
LEASE_NAME = "closeknit-operator"
LOOK_AGAIN_S = 1.0


class _Name(msgspec.Struct):
    name: str


class _Status(msgspec.Struct, rename="camel"):
    heartbeat_time: object = None


class _Topology(msgspec.Struct):
    """What is read of a NodeTopology."""

    metadata: _Name
    status: _Status = msgspec.field(default_factory=_Status)


async def findings(api: Api, namespace: str) -> AsyncIterator[Finding]:
    """All that is found, causes first. Raises ApiError where the API server cannot be asked."""
    missing = [kind.plural for kind in KINDS if not await _is_served(api, kind, namespace)]
    yield of_kinds(missing)
    yield await _leader(api, namespace)
    if not missing:
        yield of_agents([each async for each in _heartbeats(api)], datetime.now(UTC))
        yield of_judgement(await _judgement(api, namespace))


async def _is_served(api: Api, kind: Resource, namespace: str) -> bool:
    try:
        await api.list(kind, namespace=namespace if kind.namespaced else None, limit=1)
    except NotFound:
        return False
    return True


async def _leader(api: Api, namespace: str) -> Finding:
    """Compares the Lease with itself, and with no clock: those of two machines may differ."""
    first = last = await _lease(api, namespace)
    for _ in range(round(WATCHED_S / LOOK_AGAIN_S)):
        if first is not None and last is not None and first.claim != last.claim:
            break
        await asyncio.sleep(LOOK_AGAIN_S)
        first, last = first or last, await _lease(api, namespace)
    return of_leader(first, last)


async def _lease(api: Api, namespace: str) -> Lease | None:
    try:
        return lease(await api.get(LEASES, LEASE_NAME, namespace=namespace))
    except NotFound:
        return None


async def _heartbeats(api: Api) -> AsyncIterator[tuple[str, datetime | None]]:
    token: str | None = None
    while True:
        page = await api.list(NODE_TOPOLOGIES, continue_token=token)
        for document in page.items:
            found = msgspec.json.decode(document, type=_Topology)
            said = found.status.heartbeat_time
            yield found.metadata.name, moment(said) if isinstance(said, str) else None
        token = page.continue_token
        if token is None:
            return


async def _judgement(api: Api, namespace: str) -> ApiError | None:
    try:
        await api.create(TRAINING_JOBS, TRIED, namespace=namespace, dry_run=True)
    except ApiError as error:
        return error
    return None


async def _run() -> int:
    async with await HttpApi.connect(user_agent=f"closeknit-test/{version('closeknit')}") as api:
        is_well = True
        async for finding in findings(api, api.namespace):
            print(finding, flush=True)
            is_well = is_well and finding.is_well
    return 0 if is_well else 1


def main() -> int:
    """Gives 0 where all is well, 1 where something is not, 2 where the API server cannot be asked."""
    try:
        return asyncio.run(_run())
    except (ApiError, LoginError, OSError) as error:
        print(f"the API server cannot be asked: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
