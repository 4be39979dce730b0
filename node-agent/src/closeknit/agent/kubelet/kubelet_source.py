"""What the kubelet of this node says, as what the agent publishes of it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from closeknit.agent.discovery.usage.allocations import (
    Allocations,
    DraDevice,
    Grant,
    Unanswered,
    allocations,
    gpu_claims,
)
from closeknit.kube.errors import ApiError

_log = logging.getLogger(__name__)

# An answer counts this long where the next questions fail, so that a kubelet that restarts, or is asked too often by
# somebody else for a moment, makes no writes. Two questions fit into it.
ANSWER_COUNTS_S = 10.0


class Lister(Protocol):
    """PodResources, or what stands for it in a test."""

    async def list(self) -> Sequence[Grant] | Unanswered:
        """The containers of all active Pods, or why they are unknown."""
        ...


class KubeletSource:
    """The kubelet source of one agent."""

    def __init__(
        self,
        pods: Lister,
        uuids: Callable[[], Awaitable[Mapping[DraDevice, str]]],
        own: tuple[str, str] | None = None,
    ) -> None:
        """`uuids` reads those of all GPUs that the node offers by DRA; asked only where a container got another one.

        `own`: namespace and name of the Pod of this agent. Where it sees the GPUs by a DRA claim for administrators,
        the kubelet lists them as given to it, and does not say that they are given to look at only.
        """
        self._pods = pods
        self._own = own
        self._read_uuids = uuids
        self._uuids: Mapping[DraDevice, str] = {}
        self._claims: frozenset[DraDevice] = frozenset()
        self._answer: Sequence[Grant] = ()
        self._answered_at: float | None = None

    async def allocations(self) -> Allocations:
        """Who holds which GPUs now."""
        answer = await self._pods.list()
        is_old = isinstance(answer, Unanswered)
        if not isinstance(answer, Unanswered):
            answer = [each for each in answer if (each.namespace, each.pod) != self._own]
        now = asyncio.get_running_loop().time()
        if not isinstance(answer, Unanswered):
            self._answer, self._answered_at = answer, now
        elif self._answered_at is not None and now - self._answered_at < ANSWER_COUNTS_S:
            answer = self._answer
        if not isinstance(answer, Unanswered):
            # A device may have got another name or uuid since, but not while a container holds it.
            claims = gpu_claims(answer)
            if not claims <= self._claims:
                try:
                    self._uuids = await self._read_uuids()
                except ApiError as error:  # asked again with the next answer; the condition names the devices
                    _log.warning("the node's ResourceSlices cannot be read: %s", error)
                    claims = frozenset()
            self._claims = claims
        return replace(allocations(answer, self._uuids), is_old=is_old)
