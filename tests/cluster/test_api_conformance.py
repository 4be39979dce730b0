"""HttpApi does on a real API server what the in-memory Api does in tests/unit: the very same suite."""

import asyncio
import re
from collections.abc import Iterator

import pytest

from closeknit.kube.errors import ApiError
from closeknit.kube.http.http_api import HttpApi
from faults.conformance import CASES, WIDGET_CRD, WIDGETS, Case, until
from harness.local_cluster import LocalCluster


async def connect(cluster: LocalCluster) -> HttpApi:
    return await HttpApi.connect(kubeconfig=cluster.kubeconfig, user_agent="closeknit-conformance/1")


@pytest.fixture(scope="module")
def cluster(local_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """A control plane that serves widgets."""
    local_cluster.apply(WIDGET_CRD)

    async def served() -> None:
        async with await connect(local_cluster) as api:

            async def lists() -> bool:
                try:
                    await api.list(WIDGETS)
                except ApiError:
                    return False
                return True

            await until(lists, "widgets are served")

    asyncio.run(served())
    yield local_cluster
    local_cluster.kubectl("delete", "customresourcedefinition", WIDGET_CRD["metadata"]["name"], "--wait=false")


# aiohttp would rather be given a file than 1 MB at once; the library that sits between takes no file.
@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_api_over_http(case: Case, cluster: LocalCluster) -> None:
    name = re.sub("[^a-z]+", "-", getattr(case, "__name__", ""))[:60].strip("-")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def main() -> None:
        async with await connect(cluster) as api:
            await case(api, name)

    asyncio.run(main())
