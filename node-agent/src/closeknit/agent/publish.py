"""Writes what the agent found to its Node's labels and its NodeTopology, and nothing when nothing changed."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from closeknit.agent.discovery.publication import publication
from closeknit.agent.discovery.topology import Discovery
from closeknit.api.names import API_VERSION, GROUP, NODE_TOPOLOGY, VERSION
from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.kube.api import Api, JsonObject, Resource
from closeknit.kube.errors import Forbidden, NotFound

FIELD_MANAGER = "closeknit-agent"
NODES = Resource("", "v1", "nodes", namespaced=False)
NODE_TOPOLOGIES = Resource(GROUP, VERSION, "nodetopologies", namespaced=False)
# Due at the first look after that, which comes within two minutes more. The operator gives up on an agent after 15, so
# that it may miss one.
HEARTBEAT = timedelta(minutes=5)


class NotYet(Exception):  # noqa: N818 -- it is no error
    """The cluster is not ready for this node's facts; the message says what is missing."""


class Publisher:
    """Publishes for one node. What it remembers is only what the API server can tell it again."""

    def __init__(self, api: Api, node: str, *, agent_version: str | None) -> None:
        self._api = api
        self._node = node
        self._agent_version = agent_version
        self._uid = ""  # of the Node; empty until it was read
        self._labels: dict[str, str] = {}  # those of the Node that are ours

    async def publish(self, found: Discovery, now: datetime) -> list[str]:
        """Brings the cluster up to date; what it wrote, as words for a log. Raises ApiError and NotYet.

        A later call does what this one could not: every call compares with what is there.
        """
        written: list[str] = []
        topology = await self._read_topology()
        if not self._uid or topology is None:
            await self._read_node()
        if topology is not None and not self._is_ours(topology):
            topology = await self._adopted(topology)
        before = _status(topology)
        spec = _spec(topology)
        wanted = publication(found, before, _generation(topology), self._agent_version, _timestamp(now), spec)
        if spec != wanted.spec:
            topology = await self._apply_topology({"spec": wanted.spec.wire()})
            written.append("NodeTopology")
            generation = _generation(topology)
            wanted = publication(found, before, generation, self._agent_version, _timestamp(now), wanted.spec)
        is_due = self._is_heartbeat_due(before, now)
        if is_due or before.model_copy(update={"heartbeat_time": None}) != wanted.status:
            alive = wanted.status.model_copy(update={"heartbeat_time": _timestamp(now)})
            await self._apply_topology({"status": alive.wire()}, subresource="status")
            written.append("status")
        if is_due and "NodeTopology" not in written:
            await self._read_node()  # somebody may have taken our labels away
        if self._labels != wanted.labels:
            await self._apply_labels(wanted.labels)
            written.append("labels")
        return written

    async def published(self) -> tuple[NodeTopologySpec, NodeTopologyStatus] | None:
        """What is published of this node; None where nothing is, or nothing that can be read. Raises ApiError."""
        topology = await self._read_topology()
        spec = _spec(topology)
        return None if spec is None else (spec, _status(topology))

    async def _read_topology(self) -> JsonObject | None:
        try:
            return await self._api.get(NODE_TOPOLOGIES, self._node)
        except NotFound:
            return None

    async def _read_node(self) -> None:
        try:
            node = await self._api.get(NODES, self._node)
        except NotFound as error:
            self._uid = ""
            raise NotYet(f"there is no Node {self._node}") from error
        self._uid = node["metadata"]["uid"]
        labels = node["metadata"].get("labels", {})
        self._labels = {key: labels[key] for key in sorted(_owned_labels(node)) if key in labels}

    def _is_ours(self, topology: JsonObject) -> bool:
        """Whether its owner is our Node; False for one without an owner. Raises NotYet for another's."""
        owners = [owner.get("uid") for owner in topology["metadata"].get("ownerReferences", [])]
        if owners and owners != [self._uid]:
            # If a Node was recreated under its name, the old one's object is collected.
            self._uid = ""  # ours may be the old one
            raise NotYet(f"the NodeTopology {self._node} belongs to another Node of that name, and is going away")
        return bool(owners)

    async def _adopted(self, topology: JsonObject) -> JsonObject:
        """The object with our Node as its owner: it was restored from a backup, or outlived its Node as an orphan."""
        await self._read_node()
        try:
            return await self._apply_topology({"spec": topology.get("spec", {})})
        except Forbidden as error:
            # Where OwnerReferencesPermissionEnforcement is on, an owner is given only by who may delete the object.
            raise NotYet(
                f"the NodeTopology {self._node} has no owner, and the API server does not let this agent give it one "
                f"({error}); delete it and it is made again: kubectl delete nodetopology {self._node}"
            ) from error

    @staticmethod
    def _is_heartbeat_due(before: NodeTopologyStatus, now: datetime) -> bool:
        last = _moment(before.heartbeat_time)
        return last is None or not timedelta() <= now - last < HEARTBEAT  # negative: the clock was set back

    async def _apply_topology(self, part: dict[str, Any], subresource: str | None = None) -> JsonObject:
        # Always the same owner: a change of it would ask for the right to delete the object.
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._uid}
        body = {
            "apiVersion": API_VERSION,
            "kind": NODE_TOPOLOGY,
            "metadata": {"name": self._node} | ({} if subresource else {"ownerReferences": [owner]}),
        }
        return await self._api.apply(
            NODE_TOPOLOGIES, self._node, body | part, field_manager=FIELD_MANAGER, subresource=subresource
        )

    async def _apply_labels(self, labels: dict[str, str]) -> None:
        # The uid makes the API server refuse instead of creating a Node that is gone.
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self._node, "uid": self._uid, "labels": labels},
        }
        uid, self._uid = self._uid, ""  # where the answer is lost, the next call sees by the Node whether it was done
        await self._api.apply(NODES, self._node, body, field_manager=FIELD_MANAGER)
        self._uid, self._labels = uid, labels


def _owned_labels(node: JsonObject) -> set[str]:
    """Keys of the labels that this agent applied before, from what the API server keeps about field managers."""
    keys: set[str] = set()
    for entry in node["metadata"].get("managedFields", []):
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply" and not entry.get("subresource"):
            fields = entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:labels", {})
            keys |= {key.removeprefix("f:") for key in fields if key.startswith("f:")}
    return keys


def _spec(topology: JsonObject | None) -> NodeTopologySpec | None:
    """None where there is none, or none that can be read: one of another version of the CRD is written over."""
    try:
        return NodeTopologySpec.parse(topology["spec"]) if topology and "spec" in topology else None
    except ValidationError:
        return None


def _status(topology: JsonObject | None) -> NodeTopologyStatus:
    """An empty one where there is none, or none that can be read; without what the operator writes there."""
    try:
        status = NodeTopologyStatus.parse(topology.get("status", {}) if topology else {})
    except ValidationError:
        return NodeTopologyStatus()
    return status.model_copy(update={"run_ends": None, "lemon": None})


def _moment(written: str | None) -> datetime | None:
    """None where it is absent, or no moment that Python can hold: the API server takes `0000-01-01t00:00:00z`."""
    try:
        moment = datetime.fromisoformat((written or "").upper().replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _generation(topology: JsonObject | None) -> int | None:
    return topology["metadata"].get("generation") if topology else None


def _timestamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
