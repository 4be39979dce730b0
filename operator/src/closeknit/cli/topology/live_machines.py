"""NodeTopologies of a running cluster, as kubectl would reach it."""

from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import ValidationError

from closeknit.api.names import GROUP, NODE_TOPOLOGY, VERSION
from closeknit.api.objects import NodeTopology
from closeknit.api.text.printable import printable
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.live.cluster_connection import no_viewer
from closeknit.cli.live.cluster_objects import asking
from closeknit.cluster.objects.agent_report import first_fault
from closeknit.kube.api import Resource
from closeknit.kube.errors import Forbidden
from closeknit.kube.http.http_api import HttpApi

NODE_TOPOLOGIES = Resource(GROUP, VERSION, "nodetopologies", namespaced=False)


@dataclass(frozen=True, slots=True)
class Machines:
    """What a cluster has."""

    topologies: list[NodeTopology]
    unreadable: list[str]
    """Of each that this version cannot read, its name and why, as a sentence."""


async def node_topologies(node: str | None, reach: Reach) -> Machines:
    """That of one node, or all. Raises NotThere."""
    what = f"no NodeTopology {node}" if node is not None else "no NodeTopologies"
    words = f"the cluster has {what}: is closeknit installed, and does its agent run on that node?"
    async with asking(reach, missing=words) as api:
        try:
            return Machines([await one(api, node)], []) if node is not None else await _all(api)
        except Forbidden as error:
            raise no_viewer(error) from None


async def one(api: HttpApi, node: str) -> NodeTopology:
    """That of one node. Raises ApiError and NotThere."""
    found = _read(await api.get(NODE_TOPOLOGIES, node), node)
    if isinstance(found, str):
        raise NotThere(found)
    return found


async def _all(api: HttpApi) -> Machines:
    found: list[NodeTopology | str] = []
    token: str | None = None
    while True:
        page = await api.list(NODE_TOPOLOGIES, continue_token=token)
        for item in page.items:
            document = msgspec.json.decode(item)
            found.append(_read(document, document["metadata"]["name"]))
        token = page.continue_token
        if token is None:
            unreadable = [each for each in found if isinstance(each, str)]
            return Machines([each for each in found if not isinstance(each, str)], unreadable)


def _read(document: Any, name: str) -> NodeTopology | str:
    """The object, or why it is none that this version can read."""
    try:
        return NodeTopology.parse(document)
    except ValidationError as error:
        return printable(f"this version cannot read the {NODE_TOPOLOGY} {name}: {first_fault(error)}")
