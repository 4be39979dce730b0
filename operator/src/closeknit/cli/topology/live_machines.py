"""NodeTopologies of a running cluster, as kubectl would reach it."""

import msgspec

from closeknit.api.names import GROUP, VERSION
from closeknit.api.objects import NodeTopology
from closeknit.cli.input.given import Reach
from closeknit.cli.live.cluster_connection import no_viewer
from closeknit.cli.live.cluster_objects import asking
from closeknit.kube.api import Resource
from closeknit.kube.errors import Forbidden
from closeknit.kube.http.http_api import HttpApi

NODE_TOPOLOGIES = Resource(GROUP, VERSION, "nodetopologies", namespaced=False)


async def node_topologies(node: str | None, reach: Reach) -> list[NodeTopology]:
    """That of one node, or all, by name. Raises NotThere."""
    what = f"no NodeTopology {node}" if node is not None else "no NodeTopologies"
    words = f"the cluster has {what}: is closeknit installed, and does its agent run on that node?"
    async with asking(reach, missing=words) as api:
        try:
            return [await _one(api, node)] if node is not None else await _all(api)
        except Forbidden as error:
            raise no_viewer(error) from None


async def _one(api: HttpApi, node: str) -> NodeTopology:
    """That of one node. Raises ApiError and ValidationError."""
    return NodeTopology.parse(await api.get(NODE_TOPOLOGIES, node))


async def _all(api: HttpApi) -> list[NodeTopology]:
    found: list[NodeTopology] = []
    token: str | None = None
    while True:
        page = await api.list(NODE_TOPOLOGIES, continue_token=token)
        found += [NodeTopology.parse(msgspec.json.decode(item)) for item in page.items]
        token = page.continue_token
        if token is None:
            return found
