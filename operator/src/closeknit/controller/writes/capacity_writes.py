"""Writes that ask autoscalers for nodes: ProvisioningRequests, and placeholder Pods."""

import logging
from collections.abc import Callable
from datetime import datetime

from closeknit.cluster.capacity.placeholder import CapacityRefusal
from closeknit.cluster.pods.pod import FINISHED_PHASES
from closeknit.controller.writes.resources import POD_TEMPLATES, PODS, PROVISIONING_REQUESTS
from closeknit.controller.writes.write_slots import WriteSlots
from closeknit.kube.api import Resource
from closeknit.kube.errors import AlreadyExists, ApiError, Transient
from closeknit.lifecycle.capacity.capacity_manifests import CapacityAsk
from closeknit.lifecycle.capacity.capacity_news import CapacityNews, PlaceholderAsk, refusal_of

_log = logging.getLogger(__name__)


class CapacityWrites:
    """Asks for nodes, and takes back what was asked for."""

    def __init__(self, slots: WriteSlots, now: Callable[[], datetime]) -> None:
        self._slots, self._api = slots, slots.api
        self._now = now

    async def ask(self, news: CapacityNews) -> tuple[CapacityRefusal, ...]:
        """Asks for nodes, and takes back what was asked for. What was refused for good; what else was not done is found
        again."""
        refused = [await self._asked(each) for each in news.missing]
        for gone in news.gone:
            call = self._api.delete(PROVISIONING_REQUESTS, gone.name, uid=gone.uid, namespace=gone.namespace)
            await self._slots.settled("delete", PROVISIONING_REQUESTS, gone.namespace, call)
        for pod in news.placeholders_gone:
            call = self._api.delete(PODS, pod.name, uid=pod.uid, namespace=pod.namespace)
            await self._slots.settled("delete", PODS, pod.namespace, call)
        refused += [await self._stood_for(each) for each in news.placeholders]
        return tuple(each for each in refused if each is not None)

    async def _stood_for(self, asked: PlaceholderAsk) -> CapacityRefusal | None:
        """Makes placeholder Pods, up to the first that is refused for good: why, then. What is made of them by then
        goes at the next look."""
        namespace = asked.job.namespace
        for pod in asked.pods:
            name = pod["metadata"]["name"]
            try:
                await self._slots.sent("create", PODS, self._api.make(PODS, pod, namespace=namespace))
            except AlreadyExists:
                if not await self._is_ours(name, asked):
                    words = f"Pod {name}, which somebody else has made, has the name of a placeholder Pod for it"
                    return refusal_of(asked, words, self._now())
            except Transient as error:
                _log.info("a placeholder is not made", extra={"pod": f"{namespace}/{name}", "error": error})
                return None
            except ApiError as error:
                _log.warning("a placeholder is refused", extra={"pod": f"{namespace}/{name}", "error": error})
                words = f"the API server refuses a placeholder Pod for it: {error.message}"
                return refusal_of(asked, words, self._now())
        return None

    async def _is_ours(self, name: str, asked: PlaceholderAsk) -> bool:
        """Whether the Pod that has a placeholder's name is one of the job, as far as is known: the watch will show it.
        One that has ended is shown by no stream, and is deleted."""
        namespace = asked.job.namespace
        try:
            there = await self._api.get(PODS, name, namespace=namespace)
            if not any(owner.get("uid") == asked.job_uid for owner in there["metadata"].get("ownerReferences", ())):
                return False
            if there.get("status", {}).get("phase") in FINISHED_PHASES:
                call = self._api.delete(PODS, name, uid=there["metadata"]["uid"], namespace=namespace)
                await self._slots.settled("delete", PODS, namespace, call)
        except ApiError as error:
            _log.info("a placeholder is not looked at", extra={"pod": f"{namespace}/{name}", "error": error})
        return True

    async def _asked(self, asked: CapacityAsk) -> CapacityRefusal | None:
        """Makes the PodTemplate, and then the request that names it: whatever gets no answer, the next look does the
        rest. Why, where one is refused for good."""
        for resource, manifest in ((POD_TEMPLATES, asked.template), (PROVISIONING_REQUESTS, asked.request)):
            try:
                make = self._api.make(resource, manifest, namespace=asked.job.namespace)
                await self._slots.sent("create", resource, make)
            except AlreadyExists:
                continue  # of an earlier look; the watch will show the request
            except ApiError as error:
                return self._not_asked(asked, resource, error)
        return None

    def _not_asked(self, asked: CapacityAsk, what: Resource, error: ApiError) -> CapacityRefusal | None:
        where = {"request": f"{asked.job.namespace}/{asked.request['metadata']['name']}", "error": error}
        _log.warning("nodes are not asked for", extra=where)
        if isinstance(error, Transient):
            return None
        return refusal_of(asked, f"the API server refuses one of its {what}: {error.message}", self._now())
