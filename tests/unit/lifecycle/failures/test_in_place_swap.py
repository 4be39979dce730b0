"""A gang that restarts in place and loses a node: its other Pods stay, and a new one replaces that of the lost one."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import PlacementStatus, State
from closeknit.lifecycle.writes.results import Denial, DenialKind
from scenarios.manifests import training_job
from scenarios.restarting_gangs import alive, allow, begins, fails_at_barrier, running, together, waits
from scenarios.stories import ended, kill_nodes, lose_nodes, nodes, placement
from scenarios.story import Story, dra_node, plugin_node

KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])
FIRST, SECOND, THIRD = (f"train-a1-worker-{index:05d}" for index in range(3))


def joins(story: Story, pod: str) -> None:
    """A new Pod and those that stay begin the next run together."""
    together(story, (placement(story).run or 0) + 1)
    assert pod in story.pods()


@KINDS
def test_one_new_pod_takes_the_place_of_the_lost_one_and_the_others_stay(kind: Any) -> None:
    story = running(kind)
    before, uids = nodes(story), {name: story.pod(name)["metadata"]["uid"] for name in story.pods()}
    lose_nodes(story, before[1])
    (other,) = set(nodes(story)) - set(before)
    assert nodes(story) == [before[0], other, before[2]]
    assert story.status().attempt == 1
    claim = [f"create ResourceClaim {SECOND}-r1"] if kind is dra_node else []
    pods = [each for each in story.written if not each.startswith("status")]
    assert sorted(pods) == sorted([f"stop Pod {SECOND}", f"delete Pod {SECOND}", f"create Pod {SECOND}-r1", *claim]), (
        "and nothing else"
    )
    made = story.pod(f"{SECOND}-r1")
    assert made["spec"]["hostname"] == SECOND
    assert story.pod(SECOND)["metadata"]["labels"]["closeknit.dev/attempt"] == ""
    story.pass_time(3)
    joins(story, f"{SECOND}-r1")
    status = story.status()
    assert status.state is State.RUNNING
    assert (placement(story).run, placement(story).swapping, placement(story).replaced) == (1, None, {"1": 1})
    assert ended(story) == [(1, "NodeLost", False)]
    row = status.attempts[-1]
    assert row.in_place
    assert row.phases is not None
    assert None not in (row.phases.detect, row.phases.decide, row.phases.bind, row.phases.start)
    assert status.restarts == 1
    assert len([each for each in story.written if each.startswith("status")]) == 3
    for name, uid in uids.items():
        assert story.pod(name)["metadata"]["uid"] == uid


def test_node_rank_0_is_replaced_likewise_and_the_new_one_knows_who_was_replaced_before() -> None:
    story = running(nodes=6)
    lose_nodes(story, nodes(story)[2])
    story.pass_time(30)
    joins(story, f"{THIRD}-r1")
    story.pass_time(1000)
    lose_nodes(story, nodes(story)[0])
    made = story.pod(f"{FIRST}-r1")
    env = {each["name"]: each["value"] for each in made["spec"]["initContainers"][0]["env"]}
    assert json.loads(env["CLOSEKNIT_GANG_REPLACED"]) == {"0": 1, "2": 1}
    assert json.loads(env["CLOSEKNIT_GANG"])["replacement"] == 1
    assert made["spec"]["initContainers"][0]["command"] == ["closeknit-sidecar", "join"]
    story.pass_time(3)
    joins(story, f"{FIRST}-r1")
    assert story.status().state is State.RUNNING
    assert placement(story).replaced == {"0": 1, "2": 1}
    assert placement(story).run == 2


def test_a_restart_after_a_swap_is_counted_as_any_other() -> None:
    story = running()
    lose_nodes(story, nodes(story)[1])
    joins(story, f"{SECOND}-r1")
    story.pass_time(120)
    staying = [FIRST, f"{SECOND}-r1", THIRD]
    for pod in staying:
        waits(story, pod)
        story.settle()
    for pod in staying:
        begins(story, pod, 2, 3 if pod == FIRST else None)
    story.settle()
    assert ended(story) == [(1, "NodeLost", False), (1, "PodFailed", True)]
    assert placement(story).run == 2
    assert story.status().state is State.RUNNING


def test_without_the_sidecar_all_pods_are_new() -> None:
    story = running(image="")
    lose_nodes(story, nodes(story)[1])
    assert story.status().attempt == 2
    assert "create Pod train-a2-worker-00000" in story.written or "stop Pod" in " ".join(story.written)
    assert placement(story).swapping is None


def test_pods_that_stay_wait_while_no_other_node_is_there() -> None:
    story = running(nodes=3)
    before = nodes(story)
    lose_nodes(story, before[1])
    assert (story.status().attempt, placement(story).lost, placement(story).swapping) == (1, "1", True)
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == PendingReason.NODES_LOST
    assert {FIRST, THIRD} <= set(story.pods())
    story.pass_time(300)
    story.settle()
    assert {FIRST, THIRD} <= set(story.pods())
    for manifest in plugin_node("gpu-9"):
        story.add(manifest)
    allow(story)
    story.settle()
    assert nodes(story) == [before[0], "gpu-9", before[2]]
    assert f"create Pod {SECOND}-r1" in story.written
    joins(story, f"{SECOND}-r1")
    assert (story.status().state, story.status().restarts) == (State.RUNNING, 1)
    assert "create Pod train-a2-worker-00000" not in story.written


def test_after_ten_minutes_all_is_given_back() -> None:
    story = running(nodes=3)
    kill_nodes(story, nodes(story)[1])
    story.add(training_job("waiting", spec={"gpus": 8}))
    story.settle()
    story.pass_time(601)
    story.settle()
    story.end_stopped()
    story.settle()
    assert story.status().placement is None
    assert story.status().attempt == 2
    assert placement_of(story, "waiting") is not None
    assert story.status().restarts == 1


def placement_of(story: Story, name: str) -> PlacementStatus | None:
    return story.status(name).placement


def test_a_second_loss_during_the_swap_is_replaced_too() -> None:
    story = running(nodes=6)
    before = nodes(story)
    lose_nodes(story, before[1])
    new = nodes(story)[1]
    story.run_all()  # its Pod is bound, and has not started
    waits(story, f"{SECOND}-r1")
    story.settle()
    story.pass_time(60)
    lose_nodes(story, new)
    assert story.status().attempt == 1
    assert nodes(story)[1] not in {new, before[1]}
    assert f"create Pod {SECOND}-r2" in story.written
    joins(story, f"{SECOND}-r2")
    assert story.status().state is State.RUNNING
    assert placement(story).replaced == {"1": 2}
    assert [each for each in story.written if each.startswith("create Pod")] == [
        f"create Pod {SECOND}-r1",
        f"create Pod {SECOND}-r2",
    ]


def test_another_node_that_dies_meanwhile_is_replaced_too() -> None:
    story = running(nodes=6)
    before = nodes(story)
    lose_nodes(story, before[1])
    story.pass_time(60)
    lose_nodes(story, before[2])
    assert story.status().attempt == 1
    assert placement(story).replaced == {"1": 1, "2": 1}
    assert f"create Pod {THIRD}-r1" in story.written
    joins(story, f"{SECOND}-r1")
    assert story.status().state is State.RUNNING


LOSE_STAYING = pytest.mark.parametrize(
    "lose_staying",
    [
        partial(Story.mark_deleted, name=THIRD, grace_s=30),
        partial(fails_at_barrier, pod=THIRD),
        partial(Story.remove_pod, name=THIRD),
    ],
    ids=["deleted", "gave up", "gone"],
)


@LOSE_STAYING
def test_where_a_pod_that_stays_ends_all_are_new_and_it_is_the_same_restart(
    lose_staying: Callable[[Story], None],
) -> None:
    story = running(nodes=3)
    lose_nodes(story, nodes(story)[1])
    lose_staying(story)
    for manifest in plugin_node("gpu-9"):
        story.add(manifest)
    allow(story)
    story.settle()
    assert story.status().attempt == 2
    assert (len(ended(story)), story.status().restarts) == (1, 1)
    assert placement(story).swapping is None
    assert placement(story).replaced is None
    clean(story, 1)
    assert {f"train-a2-worker-{index:05d}" for index in range(3)} <= set(story.pods())


@LOSE_STAYING
def test_the_same_once_the_new_pod_is_there(
    lose_staying: Callable[[Story], None],
) -> None:
    story = running()
    lose_nodes(story, nodes(story)[1])
    story.run_all()
    lose_staying(story)
    story.settle()
    assert story.status().attempt == 2
    assert (ended(story), story.status().restarts) == ([(1, "NodeLost", False)], 1)
    clean(story, 1)
    assert {f"train-a2-worker-{index:05d}" for index in range(3)} <= set(story.pods())
    story.run_all()
    for index in range(3):
        begins(story, f"train-a2-worker-{index:05d}", 0)
    story.settle()
    assert story.status().state is State.RUNNING
    assert len(placement(story).nodes) == 3


def clean(story: Story, attempt: int) -> None:
    """The Pods of an attempt that is over end on nodes that are well."""
    for name in alive(story):
        if name.startswith(f"train-a{attempt}-"):
            story.remove_pod(name)
    story.settle()


def test_a_new_pod_that_somebody_deletes_is_made_again() -> None:
    story = running()
    lose_nodes(story, nodes(story)[1])
    story.run_all()
    story.remove_pod(f"{SECOND}-r1")
    story.pass_time(60)
    story.settle()
    assert story.status().attempt == 1
    assert story.written.count(f"create Pod {SECOND}-r1") == 2


def test_pods_that_would_be_told_other_settings_today_do_not_stay() -> None:
    """Another release of the operator, say: sidecars of two releases may not understand each other."""
    story = running()
    story.sidecar_image = "agent:2"
    lose_nodes(story, nodes(story)[1])
    assert story.status().attempt == 2
    assert len(ended(story)) == 1
    clean(story, 1)
    assert {f"train-a2-worker-{index:05d}" for index in range(3)} <= set(story.pods())


def test_where_a_replaced_pod_cannot_leave_the_service_all_are_new_the_next_time() -> None:
    story = running(nodes=6)
    story.unstoppable = Denial(DenialKind.FORBIDDEN, 403, "Forbidden", "no")
    lose_nodes(story, nodes(story)[1])
    assert story.status().attempt == 2


def test_whoever_decides_next_finds_the_same_between_any_two_writes() -> None:
    """Each write alone, by an operator that has just started."""
    story = running()
    before = nodes(story)
    kill_nodes(story, before[1])
    for _ in range(8):
        for plan in story.plans():
            if plan.writes:
                story.write(plan)
                break
        story.answers.clear()
    assert story.status().attempt == 1
    assert f"{SECOND}-r1" in story.pods()
    assert story.written.count(f"create Pod {SECOND}-r1") == 1
    joins(story, f"{SECOND}-r1")
    assert story.status().state is State.RUNNING


def test_nobody_gets_what_the_gang_holds_meanwhile() -> None:
    story = running(nodes=3)
    story.add(training_job("waiting", spec={"gpus": 8}))
    story.settle()
    kill_nodes(story, nodes(story)[1])
    for number in range(12):
        if number == 6:
            for manifest in plugin_node("gpu-9"):
                story.add(manifest)
            allow(story)
        story.write_once()
        assert placement_of(story, "waiting") is None
    story.settle()
    assert nodes(story)[1] == "gpu-9"


def test_a_drained_node_is_replaced_and_its_pod_keeps_its_log() -> None:
    story = running()
    node = nodes(story)[1]
    story.objects["Node", "", node]["spec"]["unschedulable"] = True
    story.objects["Node", "", node]["spec"]["taints"] = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ]
    story.mark_deleted(SECOND, grace_s=30)
    story.settle()
    assert story.status().attempt == 1
    assert f"create Pod {SECOND}-r1" in story.written
    assert nodes(story)[1] != node
    story.remove_pod(SECOND)
    joins(story, f"{SECOND}-r1")
    assert story.status().state is State.RUNNING
    assert ended(story)[0][2] is False


def test_the_job_is_suspended_during_a_swap() -> None:
    story = running(nodes=3)
    lose_nodes(story, nodes(story)[1])
    story.edit_job(suspend=True)
    story.settle()
    for name in alive(story):
        story.remove_pod(name)
    story.settle()
    assert story.status().placement is None
    story.edit_job(suspend=False)
    for manifest in plugin_node("gpu-9"):
        story.add(manifest)
    allow(story)
    story.settle()
    assert placement(story).swapping is None
    assert f"train-a{story.status().attempt}-worker-00000" in story.pods()


def test_where_the_last_pod_tells_late_that_it_runs_it_is_one_write_all_the_same() -> None:
    """Kubelets of a large gang tell of one run for longer than a barrier takes."""
    story = running()
    lose_nodes(story, nodes(story)[1])
    story.run_all()
    story.written.clear()
    for pod in (FIRST, f"{SECOND}-r1", THIRD):
        begins(story, pod, 1)
        story.pass_time(8)
        story.settle()
    assert story.written == ["status Running"]
    assert [each.reason for each in story.notices] == ["NodeLost"]


def test_a_new_run_that_crashes_at_once_is_counted_apart() -> None:
    story = running()
    lose_nodes(story, nodes(story)[1])
    story.run_all()
    staying = [FIRST, f"{SECOND}-r1", THIRD]
    for pod in staying:
        begins(story, pod, 1)
    waits(story, FIRST)  # before the operator looks
    begins(story, FIRST, 1)
    story.settle()
    story.pass_time(30)
    for pod in staying:
        begins(story, pod, 2, 3 if pod == FIRST else None)
    story.settle()
    assert ended(story) == [(1, "NodeLost", False), (1, "PodFailed", True)]


def test_a_gpu_that_computes_no_more_costs_one_pod_which_keeps_its_log() -> None:
    """Its node lives: its kubelet ends the old Pod, whose GPU is given to nobody."""
    story = running()
    node = nodes(story)[1]
    ill = {"index": 3, "state": "Unhealthy", "reasons": ["GPULost"]}
    story.objects["NodeTopology", "", node]["status"]["gpus"] = [ill]
    story.settle()
    assert ended(story) == [(1, "GPULost", False)]
    assert [each for each in story.written if not each.startswith("status")] == [
        f"stop Pod {SECOND}",
        f"create Pod {SECOND}-r1",
    ]
    story.end_stopped()
    story.settle()
    assert SECOND in story.pods()
    assert nodes(story)[1] != node
    joins(story, f"{SECOND}-r1")
    assert story.status().state is State.RUNNING
    assert story.status().attempt == 1


def test_where_its_new_pod_is_refused_the_gang_begins_again_under_another_number() -> None:
    """The Pod on the lost node may train on, and has its place in a gang of this number: where that node is heard
    again, it would be a member beside the new one."""
    story = running()
    story.forbidden[f"{SECOND}-r1"] = "denied by a policy"
    lose_nodes(story, nodes(story)[1])
    status = story.status()
    assert (status.placement, status.attempt, story.names("Service")) == (None, 2, [])
    for name in story.pods():
        story.remove_pod(name)
    story.forbidden.clear()
    story.pass_time(300)
    story.settle()
    assert story.pods() == [f"train-a2-worker-{index:05d}" for index in range(3)]


def test_a_new_node_that_refuses_the_pod_is_replaced_in_turn() -> None:
    story = running(nodes=6)
    lose_nodes(story, nodes(story)[1])
    refusing = nodes(story)[1]
    new = f"{SECOND}-r1"
    story.change_pod(new, node=refusing, phase="Failed", reason="OutOfcpu", message="Node didn't have enough resource")
    story.settle()
    assert story.status().attempt == 1
    assert refusing not in nodes(story)
    assert f"create Pod {SECOND}-r2" in story.written
    assert {FIRST, THIRD} <= set(story.pods())
    assert not any(charged for *_, charged in ended(story))
    joins(story, f"{SECOND}-r2")
    assert story.status().state is State.RUNNING


def test_a_rank_that_fails_beside_a_dead_node_is_charged_to_nobody() -> None:
    """Its exit code is one that does not start its Pod again: it is what NCCL made of the loss."""
    story = running(restart={"rules": [{"exitCodes": [75], "action": "RestartFree"}]})
    lose_nodes(story, nodes(story)[1])
    ended_container = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-11-21T10:02:00Z"}}
    states = [{"name": "trainer", "state": ended_container}]
    story.change_pod(FIRST, phase="Failed", containerStatuses=states)
    story.settle()
    assert ended(story) == [(1, "NodeLost", False)]
    assert (story.status().attempt, story.status().restarts) == (2, 1)
    assert not story.status().charges


def test_a_gang_beside_a_rank_that_is_over_gets_new_pods() -> None:
    story = running()
    states = [{"name": "trainer", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]
    story.change_pod(THIRD, phase="Succeeded", containerStatuses=states)
    story.settle()
    lose_nodes(story, nodes(story)[1])
    assert story.status().attempt == 2
    message = story.status().attempts[-1].message or ""
    assert message.endswith("all its Pods are new, for a rank of it is over")


def test_servers_on_a_lost_node_are_replaced_with_its_worker() -> None:
    server = {"spec": {"containers": [{"name": "trainer", "image": "ps", "command": ["ps"]}]}}
    story = running(gpus=16, framework="TensorFlow", parameterServers={"replicas": 2, "template": server})
    node = nodes(story)[1]
    there = [name for name in story.pods() if story.pod(name)["spec"]["nodeName"] == node]
    assert len(there) == 2
    lose_nodes(story, node)
    assert sorted(each for each in story.written if each.startswith("create")) == sorted(
        f"create Pod {name}-r1" for name in there
    )
    joins(story, f"{SECOND}-r1")
    assert story.status().state is State.RUNNING


def test_the_new_pod_is_told_what_the_others_were_told() -> None:
    """All but its own place: env, command and image of each container."""
    story = running()
    lose_nodes(story, nodes(story)[1])
    old, new = story.pod(SECOND)["spec"], story.pod(f"{SECOND}-r1")["spec"]
    assert (old["hostname"], old["subdomain"]) == (new["hostname"], new["subdomain"])
    for before, after in zip(old["containers"], new["containers"], strict=True):
        before_env = {each["name"]: each["value"] for each in before.get("env", ())}
        after_env = {each["name"]: each["value"] for each in after.get("env", ())}
        assert (before["image"], before.get("command")) == (after["image"], after.get("command"))
        assert before_env.keys() == after_env.keys()
        differ = {name for name in before_env if before_env[name] != after_env[name]}
        assert differ <= {"CLOSEKNIT_GANG"}


def test_on_nodes_that_tell_of_no_barriers_it_runs_once_all_pods_do() -> None:
    """As kwok's, and those of other virtual kubelets: there is no sidecar that could start anything again."""
    story = running()
    for name in story.pods():
        del story.pod(name)["status"]["initContainerStatuses"]
    lose_nodes(story, nodes(story)[1])
    assert story.status().state is not State.RUNNING
    story.run_all()
    story.settle()
    assert (story.status().state, placement(story).swapping) == (State.RUNNING, None)


@KINDS
def test_a_job_that_is_over_waits_for_no_pods_any_more(kind: Any) -> None:
    """Its time runs out while a node is lost, and while a new Pod is to join the others."""
    for writes in (1, 2):
        story = running(kind, activeDeadlineSeconds=86400)
        kill_nodes(story, nodes(story)[1])
        for _ in range(writes):
            story.write_once()
        assert (placement(story).swapping, placement(story).lost) == (True, "1" if writes == 1 else None)
        story.pass_time(86400)
        story.settle()
        assert story.status().state is State.FAILED
        assert (placement(story).swapping, placement(story).lost) == (None, None)
