"""Writes about the cluster: the status of ClusterTopologies, the runs that ended by a node, taints of GPUs."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from closeknit.api.names import API_VERSION, CLUSTER_TOPOLOGY
from closeknit.controller.writes.event_recorder import EventRecorder
from closeknit.controller.writes.resources import CLUSTER_TOPOLOGIES, DEVICE_TAINT_RULES, NODE_TOPOLOGIES
from closeknit.controller.writes.write_slots import WriteSlots, in_turn
from closeknit.kube.errors import AlreadyExists, ApiError, NotFound, Transient
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.device_taints import TaintNews
from closeknit.lifecycle.topology_status import LemonNews, TopologyNews
from closeknit.lifecycle.writes.plan import Notice

_log = logging.getLogger(__name__)


class ClusterWrites:
    """Tells in objects of the cluster what was found of them. What is refused is found again, and sent again, the next
    time."""

    def __init__(self, slots: WriteSlots, now: Callable[[], datetime], instance: str) -> None:
        self._slots, self._api = slots, slots.api
        self._events = EventRecorder(slots, now, instance)

    async def tell_topology(self, news: TopologyNews) -> None:
        """Stores the status of a ClusterTopology."""
        metadata = news.topology.metadata
        body = {
            "apiVersion": API_VERSION,
            "kind": CLUSTER_TOPOLOGY,
            "metadata": {"name": metadata.name, "uid": metadata.uid, "resourceVersion": metadata.resource_version},
            "status": news.status.wire(),
        }
        put = self._api.put_status(CLUSTER_TOPOLOGIES, metadata.name, body)
        try:
            await self._slots.sent("update", CLUSTER_TOPOLOGIES, put)
        except ApiError as error:
            _log.info("a status was not stored", extra={"topology": metadata.name, "error": error})

    async def tell_lemon(self, news: LemonNews) -> None:
        """Stores the runs that ended by a node with its NodeTopology, whose other fields are its agent's."""
        ends = [each.wire() for each in news.run_ends or ()]
        lemon = {} if news.lemon is None else news.lemon.wire()
        patch: list[dict[str, Any]] = []
        for path, value in (("/status/runEnds", ends), ("/status/lemon", lemon)):
            patch.append({"op": "add", "path": path, "value": value})  # which replaces what is there
            patch += [] if value else [{"op": "remove", "path": path}]
        call = self._api.json_patch(NODE_TOPOLOGIES, news.node, patch, subresource="status")
        try:
            await self._slots.sent("patch", NODE_TOPOLOGIES, call)
        except ApiError as error:
            _log.info("a lemon was not stored", extra={"node": news.node, "error": error})
            return
        if news.notice is not None:
            await self.tell_node(news.node, news.notice)

    async def tell_node(self, node: str, notice: Notice) -> None:
        """Sends an Event about a Node."""
        # As kubelets do it: what concerns a Node is in this namespace, under the name as uid; kubectl looks for both.
        regarding = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}
        await self._events.record("default", regarding, notice)

    async def taint(self, news: TaintNews, most: int, look: int = 0) -> None:
        """Creates and deletes so many DeviceTaintRules. One that is there is as good. One that is refused keeps no
        other back; where a cluster serves none, or nobody answers, the rest is left for the next `look`."""
        for rule in in_turn(news.missing, most, look):
            try:
                await self._made_rule(rule)
            except AlreadyExists:
                continue
            except ApiError as error:
                _log.info("a device is not tainted", extra={"rule": rule["metadata"]["name"], "error": error})
                if isinstance(error, NotFound | Transient):
                    break
        for gone in in_turn(news.gone, most, look):
            try:
                for rules in DEVICE_TAINT_RULES:  # of a version that is not served all is gone already
                    await self._slots.sent("delete", rules, self._api.delete(rules, gone.name, uid=gone.uid))
            except ApiError as error:
                _log.info("a taint was not taken back", extra={"rule": gone.name, "error": error})
                if isinstance(error, Transient):
                    break

    async def _made_rule(self, rule: Manifest) -> None:
        """Creates a DeviceTaintRule in the newest version that is served. Raises ApiError."""
        *newer, oldest = DEVICE_TAINT_RULES
        for rules in newer:
            try:
                await self._slots.sent(
                    "create", rules, self._api.make(rules, {"apiVersion": rules.api_version, **rule})
                )
            except NotFound:
                continue
            return
        await self._slots.sent("create", oldest, self._api.make(oldest, {"apiVersion": oldest.api_version, **rule}))
