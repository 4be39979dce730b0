"""Pods that are deleted on a dead node go by force only where the administrator wants that; nothing waits for it."""

from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.cluster.objects.silence import Quiet
from scenarios.restarting_gangs import running as restarting
from scenarios.stories import booked_nodes, two_plugin_nodes
from scenarios.story import Story, plugin_node

OLD = "train-a1-worker-00001"
FORCED = f"force-delete Pod {OLD}"
GRACE_S, LINGERS_S = 30, 30


def dies(story: Story, node: str, quiet: Quiet = Quiet.LONG) -> None:
    story.lose_node(node)
    story.silence(node, quiet)


def ready(story: Story, status: str) -> None:
    """Somebody says so of the second node."""
    (condition,) = (c for c in story.objects["Node", "", "gpu-2"]["status"]["conditions"] if c["type"] == "Ready")
    condition |= {"status": status, "reason": "KubeletNotReady"}


def replaced(*, force_deletes: bool = True) -> Story:
    """A gang that has lost its second node, and runs elsewhere while its Pod there is deleted and stays."""
    story = two_plugin_nodes()
    for manifest in plugin_node("gpu-3"):
        story.add(manifest)
    story.force_deletes = force_deletes
    story.settle()
    story.run_all()
    story.settle()
    dies(story, "gpu-2")
    story.settle()
    story.run_all()
    story.settle()
    assert story.status().state is State.RUNNING, "the next attempt has not waited for it"
    assert [each.name for each in booked_nodes(story)] == ["gpu-1", "gpu-3"]
    story.pod(OLD)["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:30Z"  # by its grace period later
    story.settle()
    return story


def test_once_its_grace_period_is_over() -> None:
    story = replaced()
    story.pass_time(GRACE_S + LINGERS_S - 1)
    story.settle()
    assert OLD in story.pods()
    story.pass_time(1)
    story.settle()
    assert story.written[-1] == FORCED
    assert OLD not in story.pods()
    assert story.status().state is State.RUNNING


def test_never_where_nobody_has_said_so() -> None:
    story = replaced(force_deletes=False)
    story.pass_time(86_400)
    story.settle()
    assert OLD in story.pods()
    assert FORCED not in story.written


@pytest.mark.parametrize(
    "revive",
    [
        pytest.param(lambda story: story.silent.clear(), id="it is heard: its kubelet ends the Pod"),
        pytest.param(lambda story: story.silence("gpu-2", Quiet.SILENT), id="for 20 s alone"),
        pytest.param(lambda story: story.recover_node("gpu-2"), id="it is Ready: Kubernetes does not agree"),
        pytest.param(lambda story: ready(story, "False"), id="its kubelet itself says not Ready: its Pods run on"),
        pytest.param(
            lambda story: story.objects.pop(("Node", "", "gpu-2")), id="it is gone: Kubernetes removes its Pods"
        ),
    ],
)
def test_never_on_a_node_that_may_be_alive(revive: Any) -> None:
    story = replaced()
    revive(story)
    story.pass_time(3600)
    story.settle()
    assert FORCED not in story.written


def test_once_and_not_again_where_a_finalizer_holds_it() -> None:
    story = replaced()
    story.pod(OLD)["metadata"]["deletionGracePeriodSeconds"] = 0
    story.pass_time(3600)
    story.settle()
    assert OLD in story.pods()
    assert FORCED not in story.written


def test_where_the_other_pods_of_the_attempt_stay_too() -> None:
    story = restarting()
    story.force_deletes = True
    (node,) = [story.pod(OLD)["spec"]["nodeName"]]
    dies(story, node)
    story.settle()
    assert story.status().attempt == 1
    assert f"{OLD}-r1" in story.pods()
    story.pod(OLD)["metadata"]["deletionTimestamp"] = "2026-11-21T10:02:30Z"
    story.pass_time(GRACE_S + LINGERS_S + 1)
    story.settle()
    assert FORCED in story.written
    assert OLD not in story.pods()


def test_of_a_job_that_is_suspended_meanwhile() -> None:
    story = replaced()
    story.edit_job(suspend=True)
    story.settle()
    story.pass_time(GRACE_S + LINGERS_S + 1)
    story.settle()
    assert OLD not in story.pods()


def test_where_an_administrator_has_said_that_it_is_off() -> None:
    story = replaced()
    ready(story, "False")
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    story.objects["Node", "", "gpu-2"]["spec"]["taints"] = [taint]
    story.pass_time(GRACE_S + LINGERS_S + 1)
    story.settle()
    assert FORCED in story.written
