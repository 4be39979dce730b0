"""Room that would be made in vain: for a job that avoids a GPU, and for one that the scheduler takes nowhere."""

from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.reasons import EndReason, PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.attempt.avoided_nodes import unfit
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.lifecycle.verdict import Await, Reserve, Wait
from scenarios.manifests import (
    Manifest,
    cluster_topology,
    node,
    node_topology,
    pod,
    priority_class,
    uuids,
    worker,
)
from scenarios.restarting_gangs import TEMPLATE, allow, begins
from scenarios.stories import GPUS, TeamStory, lose_nodes, nodes, run_trainers, unschedulable
from scenarios.story import Story, plugin_node
from unit.scheduling.memo.test_most_booked import NOW, Queue, queue, runs, waits
from unit.scheduling.preemption.test_preempted_jobs import HIGH, begin, ends, finish, job, site, told


def avoids(site: Queue, name: str, manifest: Manifest) -> None:
    """The job's first attempt has ended by the first GPU of the first node."""
    job = site.cluster.jobs[JobKey("team-b", name)]
    there = unfit({"gpu-00": uuids("gpu-00", 0)}, job, site.cluster, NOW)
    assert there is not None
    ended = {"number": 1, "reason": "NodeUnfit", "ended": "2026-11-21T11:58:00Z", "charged": False}
    ended["unfit"] = [each.model_dump(by_alias=True, exclude_none=True) for each in there]
    site.add({**manifest, "status": {"state": "Queued", "attempt": 2, "attempts": [ended]}})


def test_others_make_room_for_a_job_whose_equal_avoids_a_gpu_there() -> None:
    low = runs("low", 0, priority="low")
    del low["spec"]["expectedDuration"]
    pod = worker("low", 0, node="gpu-00", gpus=uuids("gpu-00", *range(8)), requests={"nvidia.com/gpu": "8"})
    site = queue(1, low, pod, waits("avoiding", 8, "urgent", hour=1), waits("equal", 8, "urgent", hour=2))
    avoids(site, "avoiding", waits("avoiding", 8, "urgent", hour=1))
    verdicts = site.decide()
    assert isinstance(verdicts["avoiding"], Wait)
    assert isinstance(verdicts["equal"], Await)


def test_no_room_is_kept_for_it_on_a_gpu_that_it_avoids() -> None:
    avoiding = waits("avoiding", 8, hour=1)
    site = queue(2, runs("soon", 0, hours=1), runs("later", 1, hours=2), avoiding)
    avoids(site, "avoiding", avoiding)
    found = site.decide()["avoiding"]
    assert isinstance(found, Reserve)
    assert [share.node for share in found.reservation.placement.shares] == ["gpu-01"]


WORDS = "0/1 nodes are available: 1 Insufficient cpu."


def live(story: Story, *, hours: int, urgent_fits: bool = False, bad_node: str = "") -> None:
    """Kubelets and the scheduler do their part, every five minutes; the scheduler takes a Pod of `urgent` nowhere, or
    not on the bad node."""
    for _ in range(hours * 12):
        story.settle()
        finish(story)
        for name in story.pods():
            is_there = bad_node in str(story.pod(name)["spec"].get("affinity"))
            if (
                name.startswith("urgent")
                and is_there
                and not urgent_fits
                and "conditions" not in story.pod(name)["status"]
            ):
                story.change_pod(name, phase="Refused", conditions=[unschedulable(WORDS, timestamp(story.now))])
        begin(story)
        for name in story.pods():
            if story.pod(name)["status"]["phase"] == "Refused":
                story.change_pod(name, phase="Pending")
        story.pass_time(300)


def test_for_whom_the_scheduler_takes_nowhere_others_end_ever_more_seldom() -> None:
    story = site(plugin_node, job("low"))
    story.add(job("urgent", **HIGH))
    live(story, hours=8)
    # After 0, 10, 30 and 70 minutes, 2:30 h and 5:10 h.
    assert {each.reason for each in story.status("urgent").attempts} == {EndReason.UNSCHEDULABLE}
    assert len(story.status("urgent").attempts) == 6
    pending = story.status("urgent").pending
    assert pending is not None
    assert "nobody makes room for it on gpu-1 before 2026-11-2" in pending.message
    assert story.status("low").state is State.RUNNING
    live(story, hours=4, urgent_fits=True)
    assert story.status("urgent").state is State.RUNNING


def pass_minutes(story: Story, minutes: int) -> None:
    """Kubelets do their part, every half minute. What quotas are to show in a moment is asked again."""
    for _ in range(2 * minutes):
        story.end_stopped()
        for _ in range(3):
            story.write_once()
            run_trainers(story)
        story.pass_time(30)


@pytest.mark.parametrize(
    ("third", "low"),
    [
        pytest.param(4, {"elastic": {"minGPUs": 4}}, id="with fewer GPUs"),
        pytest.param(8, {}, id="elsewhere"),
    ],
)
def test_who_makes_room_does_not_take_the_quota_that_it_gives_back(third: int, low: dict[str, Any]) -> None:
    """It could go on beside: on a node that the other job does not take."""
    nodes = (("gpu-1", "r1", 8), ("gpu-2", "r1", 8), ("gpu-3", "r2", third))
    machines = [
        each
        for name, rack, gpus in nodes
        for each in (node(name, gpus=gpus, labels={"net.example/rack": rack}), node_topology(name, count=gpus))
    ]
    story = TeamStory(cluster_topology("rack"), *machines, priority_class("high", 100))
    story.hard = {GPUS: "16"}
    story.objects["Node", "", "gpu-3"]["spec"]["unschedulable"] = True
    story.add(job("low", **low))
    pass_minutes(story, 1)
    del story.objects["Node", "", "gpu-3"]["spec"]["unschedulable"]
    story.add(job("urgent", 16, **HIGH, topology={"gpusPerNode": 8, "fabric": {"required": "rack"}}))
    pass_minutes(story, 5)
    assert story.status("urgent").state is State.RUNNING
    assert [each.reason for each in story.status("low").attempts] == [EndReason.PREEMPTED]
    assert told(story, "low")[0] == PendingReason.QUOTA_EXCEEDED


def test_whose_class_is_above_no_other_is_not_told_of_room() -> None:
    story = site(plugin_node, job("low"))
    ended = [
        {"number": number, "reason": EndReason.UNSCHEDULABLE, "charged": False, "ended": timestamp(story.now)}
        for number in (1, 2)
    ]
    story.add({**job("urgent"), "status": {"state": "Restarting", "attempt": 3, "attempts": ended}})
    story.settle()
    story.pass_time(120)
    story.settle()
    pending = story.status("urgent").pending
    assert pending is not None
    assert "makes room" not in pending.message


def test_nobody_ends_for_a_job_that_lacks_the_cpus_of_a_limit_range() -> None:
    """Its first Pod shows what it asks for; once somebody has left the CPUs, others make room."""
    story = site(plugin_node, job("low"), nodes=2)
    story.limited_cpu = "100"
    for number in (1, 2):
        story.add(pod(f"simulation-{number}", node=f"gpu-{number}", requests={"cpu": "64"}))
    story.add(job("other"))
    begin(story)
    story.add(job("urgent", **HIGH))
    live(story, hours=1)
    assert len(ends(story, "low")) + len(ends(story, "other")) == 3, "and not on the second node, but for 10 and 30 min"
    story.remove_pod("simulation-1")
    story.remove_pod("simulation-2")
    live(story, hours=1, urgent_fits=True)
    assert story.status("urgent").state is State.RUNNING


def test_one_bad_node_keeps_no_job_from_the_others() -> None:
    story = site(plugin_node, job("first"), job("second"), nodes=2)
    story.add(job("urgent", **HIGH))
    live(story, hours=1, bad_node="gpu-1")
    assert story.status("urgent").state is State.RUNNING
    assert [each.reason for each in story.status("urgent").attempts] in ([], [EndReason.UNSCHEDULABLE])


def test_what_a_limit_range_adds_counts_in_free_room_after_a_failed_start() -> None:
    """Only what is free changes what it is told; now and then it is tried all the same, for the LimitRange may be
    another one."""
    story = site(plugin_node)
    story.limited_cpu = "100"
    story.add(pod("simulation", node="gpu-1", requests={"cpu": "64"}))
    story.add(job("urgent"))
    live(story, hours=5)
    attempts, pending = story.status("urgent").attempts, story.status("urgent").pending
    assert (len(attempts), attempts[0].reason) == (7, EndReason.UNSCHEDULABLE)  # 0, 10, 30, 70 min, and hour by hour
    assert pending is not None
    assert pending.reason == PendingReason.INSUFFICIENT_RESOURCES
    assert "needs 8 GPUs on nodes with 100 cpu left" in pending.message
    assert "admission added 100 cpu to its last Pod, and may do so again" in pending.message
    story.remove_pod("simulation")
    story.settle()
    begin(story)
    assert story.status("urgent").state is State.RUNNING
    assert len(story.status("urgent").attempts) == 7


def room_is_made(limited: int) -> Story:
    """The quota refuses the Pod of the job for which another has ended, as it still counts two CPUs: so many it has."""
    story = site(plugin_node, job("low"))
    story.add(job("urgent", **HIGH))
    story.settle()
    words = f"exceeded quota: team, requested: requests.cpu=1, used: requests.cpu=2, limited: requests.cpu={limited}"
    story.forbidden["urgent-a1-worker-00000"], story.passing_on_trial = words, True
    story.end_stopped()
    later(story, 10)
    return story


def later(story: Story, seconds: int) -> None:
    for _ in range(seconds // 2):
        story.write_once()
        story.pass_time(2)


def test_a_quota_that_still_counts_who_made_room_refuses_nothing() -> None:
    """By what a LimitRange adds, so that only the API server sees it: the room is kept until it is counted again."""
    story = room_is_made(2)
    assert story.status("urgent").placement is not None
    assert told(story, "low")[0] == PendingReason.INSUFFICIENT_GPUS
    story.forbidden.clear()
    story.settle()
    begin(story)
    assert story.status("urgent").state is State.RUNNING
    assert len(ends(story, "low")) == 1


@pytest.mark.parametrize(
    ("limited", "seconds", "is_told"),
    [
        pytest.param(0, 0, True, id="too small"),
        pytest.param(2, 10, False, id="perhaps not counted again yet"),
        pytest.param(2, 40, True, id="never counted again"),
    ],
)
def test_a_quota_that_leaves_too_little_all_the_same_is_told(limited: int, seconds: int, is_told: bool) -> None:
    story = room_is_made(limited)
    later(story, seconds)
    assert (PendingReason.QUOTA_EXCEEDED in [each.reason for each in story.notices]) == is_told


def test_a_gang_that_lost_a_node_leaves_the_quota_for_which_others_make_room() -> None:
    """The quota has room for the gang's new Pod now, and for the other job once one has ended; not for both."""
    racks = {"gpu-1": "r1", "gpu-2": "r1", "gpu-3": "r1", "gpu-4": "r2", "gpu-5": "r2"}
    machines = [each for name in racks for each in plugin_node(name)]
    for each in machines:
        each["metadata"].setdefault("labels", {})["net.example/rack"] = racks[each["metadata"]["name"]]
    story = TeamStory(cluster_topology("rack"), *machines, priority_class("high", 100))
    story.sidecar_image = "agent:1"
    allow(story)
    rack = {"topology": {"gpusPerNode": 8, "fabric": {"required": "rack"}}}
    story.add(job("train", 16, **rack, template=TEMPLATE, restart={"limit": 2}))
    slow = {"terminationGracePeriodSeconds": 1800, "nodeSelector": {"net.example/rack": "r2"}}
    story.add(job("low", template={"spec": {**TEMPLATE["spec"], **slow}}))
    story.settle()
    story.run_all()
    for name in story.pods():
        begins(story, name, 0)
    story.settle()
    story.hard = {GPUS: "24"}
    story.objects["Node", "", "gpu-3"]["spec"]["unschedulable"] = True
    lose_nodes(story, nodes(story, "train")[1])
    story.remove_pod("train-a1-worker-00001")
    story.add(job("urgent", 16, **HIGH, **rack))
    story.settle()
    assert told(story, "train")[0] == PendingReason.NODES_LOST
    assert told(story, "urgent")[0] == PendingReason.PREEMPTION_PENDING
    del story.objects["Node", "", "gpu-3"]["spec"]["unschedulable"]
    for _ in range(3):
        story.write_once()
    pass_minutes(story, 2)
    assert story.status("urgent").state is State.RUNNING
    assert [each.reason for each in story.status("low").attempts] == [EndReason.PREEMPTED]
