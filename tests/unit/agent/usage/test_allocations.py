"""Who holds which GPUs, of what the kubelet answered: all of it is right, or nothing is said."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from closeknit.agent.discovery.usage.allocations import (
    MAX_ALLOCATIONS,
    AllocationReason,
    Allocations,
    DraDevice,
    Grant,
    Unanswered,
    allocations,
)
from closeknit.agent.kubelet.kubelet_source import KubeletSource
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.kube.errors import Unavailable
from faults import virtual_time

GPU = "nvidia.com/gpu"
UUID = "GPU-8a10b6f7-077c-d51f-48f0-eba64feb5e9f"
MIG = "MIG-4fe6eb2a-0b1c-5a4d-8d5e-3c2b1a0f9e8d"
OLD_MIG = "MIG-GPU-8a10b6f7-077c-d51f-48f0-eba64feb5e9f/1/0"
BUSY = Unanswered(AllocationReason.KUBELET_BUSY, "busy")


def grant(*plugged: tuple[str, str], pod: str = "rank-0", claimed: Sequence[DraDevice] = ()) -> Grant:
    return Grant("team", pod, "trainer", plugged, tuple(claimed))


def dra(device: str, driver: str = "gpu.nvidia.com") -> DraDevice:
    return DraDevice(driver, "node-1", device)


def devices(known: Allocations) -> dict[str, list[str]] | None:
    return None if known.held is None else {each.pod: each.devices for each in known.held}


@pytest.mark.parametrize(
    ("plugged", "expected"),
    [
        ([(GPU, UUID)], [UUID]),
        ([("nvidia.com/mig-3g.20gb", MIG), ("nvidia.com/mig-1g.10gb", OLD_MIG)], [MIG, OLD_MIG]),
        ([("nvidia.com/gpu.shared", f"{UUID}::3"), ("nvidia.com/gpu.shared", f"{UUID}::7")], [UUID]),
        ([("example.com/big-gpu", UUID)], [UUID]),
        ([("rdma/hca", "3"), (GPU, UUID)], [UUID]),
        ([("rdma/hca", "3")], None),
        ([], None),
    ],
    ids=["a GPU", "MIG, new and old", "replicas of one", "a renamed resource", "beside a NIC", "only a NIC", "nothing"],
)
def test_devices_of_plugins(plugged: list[tuple[str, str]], expected: list[str] | None) -> None:
    known = allocations([grant(*plugged)], {})
    assert devices(known) == ({"rank-0": expected} if expected else {})
    assert (known.finding.status, known.finding.reason) == ("True", AllocationReason.LISTED)


def test_order_and_shape() -> None:
    answer = [grant((GPU, "GPU-b"), (GPU, "GPU-a"), pod="rank-1"), grant((GPU, "GPU-c"))]
    known = allocations(answer, {})
    assert known == allocations(answer[::-1], {})
    assert list(devices(known) or {}) == ["rank-0", "rank-1"]
    assert known.held is not None and known.held[1].devices == ["GPU-a", "GPU-b"]
    wire = NodeTopologyStatus(allocations=list(known.held)).wire()
    assert NodeTopologyStatus.parse(wire).allocations == list(known.held)


def test_devices_of_claims_are_known_by_the_slices() -> None:
    answer = [grant(claimed=[dra("gpu-1"), dra("eth0", driver="dra.net")])]
    assert devices(allocations(answer, {dra("gpu-1"): UUID})) == {"rank-0": [UUID]}


@pytest.mark.parametrize(
    ("unknown", "words"),
    [
        (grant((GPU, "17")), "nvidia.com/gpu '17'"),
        (grant(claimed=[dra("gpu-1")]), "device 'gpu-1' of pool 'node-1'"),
    ],
    ids=["of a plugin", "of a claim"],
)
def test_one_unknown_gpu_and_nothing_is_said(unknown: Grant, words: str) -> None:
    known = allocations([grant((GPU, UUID), pod="other"), unknown], {})
    assert known.held is None
    assert (known.finding.status, known.finding.reason) == ("False", AllocationReason.UNKNOWN_DEVICE)
    assert words in known.finding.message


@pytest.mark.parametrize(
    "answer",
    [
        [grant((GPU, UUID), pod=f"rank-{number}") for number in range(MAX_ALLOCATIONS + 1)],
        [grant(*((GPU, f"GPU-{number}") for number in range(257)))],
        [grant(*((GPU, "x" * 5000) for _ in range(5000)))],
        [grant((GPU, UUID), pod="x" * 300)],
    ],
    ids=["containers", "devices", "long names", "a Pod's name that none can have"],
)
def test_what_cannot_be_published_is_said(answer: list[Grant]) -> None:
    known = allocations(answer, {})
    assert known.held is None and known.finding.status == "False"
    assert len(known.finding.message) < 500


def test_no_answer_is_not_an_empty_one() -> None:
    known = allocations(BUSY, {})
    assert known.held is None
    assert (known.finding.status, known.finding.reason, known.finding.message) == ("False", "KubeletBusy", "busy")


class Asked:
    """A kubelet whose answers are set by the test, and slices that count how often they are read."""

    def __init__(self) -> None:
        self.answer: Sequence[Grant] | Unanswered = BUSY
        self.uuids: Mapping[DraDevice, str] | None = {}
        self.reads = 0

    async def list(self) -> Sequence[Grant] | Unanswered:
        return self.answer

    async def read_uuids(self) -> Mapping[DraDevice, str]:
        self.reads += 1
        if self.uuids is None:
            raise Unavailable("etcd is busy")
        return self.uuids


def test_the_last_answer_counts_for_a_moment() -> None:
    async def main() -> None:
        asked = Asked()
        kubelet = KubeletSource(asked, asked.read_uuids)
        assert (await kubelet.allocations()).held is None
        asked.answer = [grant((GPU, UUID))]
        known = await kubelet.allocations()
        assert devices(known) == {"rank-0": [UUID]}
        asked.answer = BUSY
        await asyncio.sleep(9.9)
        assert await kubelet.allocations() == known
        await asyncio.sleep(0.2)
        assert (await kubelet.allocations()).finding.reason == AllocationReason.KUBELET_BUSY

    virtual_time.run(main())


def test_slices_are_read_when_a_claim_is_new() -> None:
    async def main() -> None:
        asked = Asked()
        kubelet = KubeletSource(asked, asked.read_uuids)
        asked.answer = [grant((GPU, UUID))]
        await kubelet.allocations()
        assert asked.reads == 0  # nothing is asked where DRA is not used
        asked.answer, asked.uuids = [grant(claimed=[dra("gpu-0")])], None
        assert (await kubelet.allocations()).held is None
        asked.uuids = {dra("gpu-0"): "GPU-old"}
        assert [devices(await kubelet.allocations()) for _ in range(3)] == [{"rank-0": ["GPU-old"]}] * 3
        assert asked.reads == 2
        # Let go, and given out again: it may be another GPU by now.
        asked.answer = []
        await kubelet.allocations()
        asked.answer, asked.uuids = [grant(claimed=[dra("gpu-0")])], {dra("gpu-0"): "GPU-new"}
        assert devices(await kubelet.allocations()) == {"rank-0": ["GPU-new"]}

    virtual_time.run(main())


def test_the_agents_own_pod_looks_at_gpus_and_holds_none() -> None:
    async def main() -> None:
        asked = Asked()
        asked.uuids = {dra("gpu-0"): UUID}
        asked.answer = [grant(claimed=[dra("gpu-0")], pod="closeknit-agent-x"), grant((GPU, "GPU-b"))]
        ours = KubeletSource(asked, asked.read_uuids, ("team", "closeknit-agent-x"))
        assert devices(await ours.allocations()) == {"rank-0": ["GPU-b"]}
        namesake = KubeletSource(asked, asked.read_uuids, ("other", "closeknit-agent-x"))
        assert len(devices(await namesake.allocations()) or {}) == 2

    virtual_time.run(main())
