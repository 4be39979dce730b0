"""Asks the kubelet which container holds which devices: its PodResources API, gRPC over a socket file."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from closeknit.agent.discovery.usage.allocations import AllocationReason, DraDevice, Grant, Unanswered
from closeknit.agent.kubelet.pod_resources_messages import LIST, ListPodResourcesRequest, ListPodResourcesResponse

DEADLINE_S = 4.0  # less than the time between two questions
_MAX_WORDS = 200  # of an error's text

_REASONS = {
    Status.UNIMPLEMENTED: (AllocationReason.KUBELET_UNSUPPORTED, "the kubelet does not serve the PodResources API v1"),
    Status.RESOURCE_EXHAUSTED: (AllocationReason.KUBELET_BUSY, "the kubelet is asked too often, by whomever"),
    Status.DEADLINE_EXCEEDED: (AllocationReason.KUBELET_SLOW, "the kubelet took too long"),
}


class PodResources:
    """The kubelet of this node, over one connection, which ends with the first question that fails."""

    def __init__(self, socket: Path, *, deadline_s: float = DEADLINE_S) -> None:
        self._socket = socket
        self._deadline_s = deadline_s
        self._channel: Channel | None = None

    async def list(self) -> Sequence[Grant] | Unanswered:
        """The containers of all active Pods, or why they are unknown; never raises for what the kubelet does."""
        answer = await self._answered()
        if isinstance(answer, Unanswered):
            self.close()
        return answer

    def close(self) -> None:
        """Ends the connection; the next question makes another."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    async def _answered(self) -> Sequence[Grant] | Unanswered:
        if self._channel is None:
            self._channel = Channel(path=str(self._socket))
        question = UnaryUnaryMethod(self._channel, LIST, ListPodResourcesRequest, ListPodResourcesResponse)
        try:
            async with asyncio.timeout(self._deadline_s):  # also of the connection, which grpclib's own does not count
                answer = await question(ListPodResourcesRequest(), timeout=self._deadline_s)
        except TimeoutError:
            return self._unanswered(AllocationReason.KUBELET_SLOW, f"no answer within {self._deadline_s:g} s")
        except GRPCError as error:
            reason, words = _REASONS.get(error.status, (AllocationReason.KUBELET_FAILED, "the kubelet refuses"))
            return self._unanswered(reason, f"{words}: {error.status.name} {error.message or ''}".rstrip())
        except (ProtocolError, StreamTerminatedError, DecodeError, ValueError) as error:
            return self._unanswered(AllocationReason.KUBELET_FAILED, f"this is no PodResources API: {error}")
        except OSError as error:
            return self._unanswered(AllocationReason.KUBELET_UNREACHABLE, error.strerror or str(error))
        return _grants(answer)

    def _unanswered(self, reason: AllocationReason, words: str) -> Unanswered:
        return Unanswered(reason, f"{self._socket}: {words[:_MAX_WORDS]}.")


def _grants(answer: Any) -> list[Grant]:
    return [
        Grant(
            namespace=pod.namespace,
            pod=pod.name,
            container=container.name,
            plugged=tuple((each.resource_name, device) for each in container.devices for device in each.device_ids),
            claimed=tuple(
                DraDevice(each.driver_name, each.pool_name, each.device_name)
                for claim in container.dynamic_resources
                for each in claim.claim_resources
            ),
        )
        for pod in answer.pod_resources
        for container in pod.containers
    ]
