"""Writes of Kueue's Workloads."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from closeknit.controller.writes.resources import WORKLOADS
from closeknit.controller.writes.write_slots import WriteSlots
from closeknit.lifecycle.kueue.workload_news import WorkloadNews


async def write_workloads(slots: WriteSlots, news: WorkloadNews) -> bool:
    """Makes, deletes and changes Workloads. Whether all of that was done: what was refused is found again."""
    api = slots.api
    calls: list[tuple[str, str, Coroutine[Any, Any, object]]] = []
    for made in news.missing:
        namespace = made["metadata"]["namespace"]
        calls.append(("create", namespace, api.make(WORKLOADS, made, namespace=namespace)))
    for gone in news.gone:
        call = api.delete(WORKLOADS, gone.name, uid=gone.uid, namespace=gone.namespace)
        calls.append(("delete", gone.namespace, call))
    for there, operations, of_status in news.changed:
        part = "status" if of_status else None
        patch = api.json_patch(WORKLOADS, there.name, operations, namespace=there.namespace, subresource=part)
        calls.append(("patch", there.namespace, patch))
    is_done = await asyncio.gather(*(slots.settled(verb, WORKLOADS, where, call) for verb, where, call in calls))
    return all(is_done)
