"""A failure that another setting, or other nodes, would end is answered by that, once, and told."""

from typing import Any

import pytest

from closeknit.launch.remedy import Remedy, remedy
from scenarios.manifests import training_job
from scenarios.stories import conditions, ended, two_plugin_nodes
from scenarios.story import Story, plugin_node

MULTICAST = (
    "torch.distributed.DistBackendError: NCCL error\nLast error:\nFailed to bind NVLink SHARP (NVLS) Multicast memory "
    "of size 2097152 at MC group 7f offset 0 : CUDA error 401 'the operation cannot be performed in the present state'."
)
UNREACHABLE = "NET/IB: Got completion from peer 10.2.0.5<33092> with error 12, opcode 0, len 0, vendor err 129 (Recv)"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (MULTICAST, Remedy.WITHOUT_NVLS),
        ("transport/nvls.cc:283 NCCL WARN Cuda failure 1 'invalid argument'", Remedy.WITHOUT_NVLS),
        (UNREACHABLE, Remedy.ELSEWHERE),
        ("NET/IB: Got completion from peer 10.9.1.6<5> with status=12 opcode=129 len=0", Remedy.ELSEWHERE),
        ("with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RECV_RDMA_WITH_IMM(129)", Remedy.ELSEWHERE),
        ("with status=4 opcode=0 len=0 vendor err 81 (Send)", None),
        ("Bootstrap : no socket interface found", None),
        ("", None),
    ],
)
def test_only_the_error_that_calls_for_it_is_taken(said: str, expected: Remedy | None) -> None:
    assert remedy(said) is expected


def fails(story: Story, *pods: str, said: str) -> None:
    terminated = {"terminated": {"exitCode": 1, "reason": "Error", "message": said}}
    for name in pods:
        story.change_pod(name, phase="Failed", containerStatuses=[{"name": "trainer", "state": terminated}])
    for _ in range(3):
        story.settle()


def running(**spec: Any) -> Story:
    story = two_plugin_nodes(**spec)
    story.settle()
    story.run_all()
    story.settle()
    return story


def is_without_multicast(story: Story) -> bool:
    pods = [manifest for (kind, *_), manifest in story.objects.items() if kind == "Pod"]
    env = [entry for pod in pods for entry in pod["spec"]["containers"][0].get("env", [])]
    return {"name": "NCCL_NVLS_ENABLE", "value": "0"} in env


def restart(story: Story, attempt: int) -> None:
    """The Pods of the attempt before go, and those of the next one run."""
    for name in story.pods():
        if f"-a{attempt - 1}-" in name:
            story.remove_pod(name)
    story.settle()
    story.run_all()
    story.settle()


def test_multicast_that_fails_is_done_without_uncharged_and_told() -> None:
    story = running()
    assert not is_without_multicast(story)
    fails(story, "train-a1-worker-00001", said=MULTICAST)
    assert ended(story) == [(1, "MulticastFailed", False)]
    restart(story, 2)
    assert is_without_multicast(story)
    degraded = next(each for each in story.status().conditions if each.type == "Degraded")
    assert (degraded.status, degraded.reason) == ("True", "WithoutMulticast")
    assert "MulticastFailed" in [notice.reason for notice in story.notices]


def test_the_same_error_again_is_the_jobs_own_failure() -> None:
    story = running()
    fails(story, "train-a1-worker-00001", said=MULTICAST)
    restart(story, 2)
    fails(story, "train-a2-worker-00001", said=MULTICAST)
    assert [(number, reason) for number, reason, _ in ended(story)] == [(1, "MulticastFailed"), (2, "PodFailed")]
    assert conditions(story)["Failed"] == "True"


def test_a_setting_of_the_users_own_is_left_as_it_is() -> None:
    container = {"name": "trainer", "image": "i", "env": [{"name": "NCCL_NVLS_ENABLE", "value": "2"}]}
    story = running(template={"spec": {"containers": [container]}})
    fails(story, "train-a1-worker-00001", said=MULTICAST)
    assert conditions(story)["Failed"] == "True"


def test_peers_that_cannot_be_reached_send_the_job_elsewhere() -> None:
    spares = [*plugin_node("gpu-3"), *plugin_node("gpu-4")]
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), *spares, training_job(spec={"gpus": 16}))
    story.settle()
    story.run_all()
    story.settle()
    fails(story, "train-a1-worker-00000", "train-a1-worker-00001", said=UNREACHABLE)
    assert ended(story) == [(1, "RDMAFailed", False)]
    restart(story, 2)
    placement = story.status().placement
    assert placement is not None
    assert [node.name for node in placement.nodes] == ["gpu-3", "gpu-4"]


def test_a_rank_that_crashed_is_not_taken_for_a_network_that_failed() -> None:
    story = running()
    crashed = {"terminated": {"exitCode": 1, "reason": "Error", "message": "ValueError: loss is nan"}}
    story.change_pod("train-a1-worker-00000", phase="Failed", containerStatuses=[{"name": "trainer", "state": crashed}])
    fails(story, "train-a1-worker-00001", said=UNREACHABLE)
    assert conditions(story)["Failed"] == "True"
