"""Writes of Kueue's Workloads."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from closeknit.controller.writes.resources import WORKLOADS
from closeknit.controller.writes.write_slots import WriteSlots, in_turn
from closeknit.lifecycle.kueue.workload_news import WorkloadNews

AT_ONCE = 256
"""Workloads of each kind of news that are written before the cluster is looked at again."""


async def write_workloads(slots: WriteSlots, news: WorkloadNews, look: int = 0) -> bool:
    """Makes, deletes and changes Workloads, AT_ONCE of each at this `look`. Whether all of that was done: what was
    refused is found again."""
    api = slots.api
    calls: list[tuple[str, str, Coroutine[Any, Any, object]]] = []
    for made in in_turn(news.missing, AT_ONCE, look):
        namespace = made["metadata"]["namespace"]
        calls.append(("create", namespace, api.make(WORKLOADS, made, namespace=namespace)))
    for gone in in_turn(news.gone, AT_ONCE, look):
        call = api.delete(WORKLOADS, gone.name, uid=gone.uid, namespace=gone.namespace)
        calls.append(("delete", gone.namespace, call))
    for there, operations, of_status in in_turn(news.changed, AT_ONCE, look):
        part = "status" if of_status else None
        patch = api.json_patch(WORKLOADS, there.name, operations, namespace=there.namespace, subresource=part)
        calls.append(("patch", there.namespace, patch))
    is_done = await asyncio.gather(*(slots.settled(verb, WORKLOADS, where, call) for verb, where, call in calls))
    return all(is_done)
