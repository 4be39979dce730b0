"""The kubelet is asked over its socket, and whatever it does is an answer or a reason. A gRPC server stands for it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from closeknit.agent.discovery.usage.allocations import AllocationReason, DraDevice, Grant, Unanswered
from closeknit.agent.kubelet.pod_resources import PodResources
from closeknit.agent.kubelet.pod_resources_messages import LIST, ListPodResourcesRequest, ListPodResourcesResponse

Answers = Callable[[], Awaitable[Any]]


class Lister:
    """Serves List with what `answers` gives."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def _list(self, stream: "Stream[Any, Any]") -> None:
        await stream.recv_message()
        await stream.send_message(await self._answers())

    def __mapping__(self) -> dict[str, Handler]:
        kinds = ListPodResourcesRequest, ListPodResourcesResponse
        return {LIST: Handler(self._list, Cardinality.UNARY_UNARY, *kinds)}


@asynccontextmanager
async def serving(socket: Path, lister: Lister) -> AsyncIterator[None]:
    server = Server([lister])
    await server.start(path=str(socket))
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


def ask(socket: Path, lister: Lister, deadline_s: float = 5) -> Sequence[Grant] | Unanswered:
    async def main() -> Sequence[Grant] | Unanswered:
        async with serving(socket, lister):
            with closing(PodResources(socket, deadline_s=deadline_s)) as kubelet:
                return await kubelet.list()

    return asyncio.run(main())


def raising(status: Status, words: str) -> Answers:
    async def answers() -> Any:
        raise GRPCError(status, words)

    return answers


def test_devices_of_plugins_and_of_claims(tmp_path: Path) -> None:
    answer = ListPodResourcesResponse()
    pod = answer.pod_resources.add(name="rank-0", namespace="team")
    container = pod.containers.add(name="trainer")
    for uuid in ("GPU-1", "GPU-0"):  # the kubelet makes an entry for each device
        container.devices.add(resource_name="nvidia.com/gpu", device_ids=[uuid])
    claim = container.dynamic_resources.add()
    claim.claim_resources.add(driver_name="gpu.nvidia.com", pool_name="node-1", device_name="gpu-3")
    pod.containers.add(name="sidecar")

    async def answers() -> Any:
        return answer

    assert ask(tmp_path / "kubelet.sock", Lister(answers)) == [
        Grant(
            "team",
            "rank-0",
            "trainer",
            plugged=(("nvidia.com/gpu", "GPU-1"), ("nvidia.com/gpu", "GPU-0")),
            claimed=(DraDevice("gpu.nvidia.com", "node-1", "gpu-3"),),
        ),
        Grant("team", "rank-0", "sidecar"),
    ]


def test_an_idle_node_is_an_answer(tmp_path: Path) -> None:
    async def answers() -> Any:
        return ListPodResourcesResponse()

    assert ask(tmp_path / "kubelet.sock", Lister(answers)) == []


def test_a_large_answer_comes_whole(tmp_path: Path) -> None:
    """The kubelet's limit of 16 MiB is the only one: HTTP/2's windows are not."""
    answer = ListPodResourcesResponse()
    for number in range(2000):
        pod = answer.pod_resources.add(name=f"pod-{number}" + "x" * 200, namespace="team" * 10)
        pod.containers.add(name="main").devices.add(resource_name="nvidia.com/gpu", device_ids=["GPU-" + "0" * 36])

    async def answers() -> Any:
        return answer

    found = ask(tmp_path / "kubelet.sock", Lister(answers))
    assert isinstance(found, list) and len(found) == 2000


@pytest.mark.parametrize(
    ("lister", "reason", "words"),
    [
        (
            Lister(raising(Status.UNIMPLEMENTED, "unknown service v1.PodResourcesLister")),
            AllocationReason.KUBELET_UNSUPPORTED,
            "the kubelet does not serve the PodResources API v1: UNIMPLEMENTED unknown service v1.PodResourcesLister.",
        ),
        (
            Lister(raising(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")),
            AllocationReason.KUBELET_BUSY,
            "the kubelet is asked too often, by whomever: RESOURCE_EXHAUSTED rejected by rate limit.",
        ),
        (
            Lister(raising(Status.INTERNAL, "x" * 5000)),
            AllocationReason.KUBELET_FAILED,
            f"the kubelet refuses: INTERNAL {'x' * 170}.",
        ),
    ],
    ids=["an old kubelet", "a busy one", "one that fails"],
)
def test_a_refusal_is_a_reason(tmp_path: Path, lister: Lister, reason: AllocationReason, words: str) -> None:
    socket = tmp_path / "kubelet.sock"
    assert ask(socket, lister) == Unanswered(reason, f"{socket}: {words}")


def test_a_kubelet_that_does_not_answer(tmp_path: Path) -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    socket = tmp_path / "kubelet.sock"
    assert ask(socket, Lister(never), deadline_s=0.1) == Unanswered(
        AllocationReason.KUBELET_SLOW, f"{socket}: no answer within 0.1 s."
    )


def test_somebody_else_listens_there(tmp_path: Path) -> None:
    socket = tmp_path / "kubelet.sock"

    async def main() -> Sequence[Grant] | Unanswered:
        def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_unix_server(say, socket):
            return await PodResources(socket, deadline_s=1).list()

    found = asyncio.run(main())
    assert isinstance(found, Unanswered) and found.reason is AllocationReason.KUBELET_FAILED


def test_no_socket_and_one_that_nobody_serves(tmp_path: Path) -> None:
    async def ask_at(path: Path) -> Sequence[Grant] | Unanswered:
        return await PodResources(path).list()

    absent = tmp_path / "absent.sock"
    unreachable = AllocationReason.KUBELET_UNREACHABLE
    assert asyncio.run(ask_at(absent)) == Unanswered(unreachable, f"{absent}: No such file or directory.")
    file = tmp_path / "file"
    file.touch()
    assert asyncio.run(ask_at(file)) == Unanswered(unreachable, f"{file}: Connection refused.")


def test_one_connection_serves_until_it_fails_and_then_another(tmp_path: Path) -> None:
    """A kubelet that starts again makes a new socket of the same name."""
    socket = tmp_path / "kubelet.sock"

    async def answers() -> Any:
        return ListPodResourcesResponse()

    class Counted(Lister):
        async def _list(self, stream: "Stream[Any, Any]") -> None:
            connections.add(id(stream._stream.connection))
            await super()._list(stream)

    async def main() -> None:
        kubelet = PodResources(socket)
        for _ in range(2):
            connections.clear()
            async with serving(socket, Counted(answers)):
                found = [await kubelet.list() for _ in range(4)]
                assert found == [[], [], [], []] and len(connections) == 1
                assert kubelet._channel is not None and kubelet._channel._protocol is not None
                kubelet._channel._protocol.connection._transport.abort()  # as the end of a kubelet does
            socket.unlink(missing_ok=True)
            assert isinstance(await kubelet.list(), Unanswered)

    connections: set[int] = set()
    asyncio.run(main())
