"""A job of high priority gets the room of others: who goes, when, and what is held for whom."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.verdict import Book
from closeknit.lifecycle.writes.plan import Plan
from closeknit.lifecycle.writes.resource_quotas import Quota, ScopeRequirement
from closeknit.scheduling.decision import decide
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.victims.victim import unbooked
from scenarios.manifests import priority_class, training_job
from scenarios.stories import run_trainers
from scenarios.story import Story, dra_node, plugin_node

KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])
HIGH: dict[str, Any] = {"priorityClassName": "high"}


def site(kind: Any, *jobs: dict[str, Any], nodes: int = 1) -> Story:
    """So many nodes, and jobs that run there."""
    machines = [each for number in range(1, nodes + 1) for each in kind(f"gpu-{number}")]
    story = Story(*machines, priority_class("high", 100), priority_class("meek", 100, preempts=False), *jobs)
    story.settle()
    begin(story)
    return story


def job(name: str, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    return training_job(name, spec={"gpus": gpus, **spec})


def begin(story: Story) -> None:
    """All Pods run, and their containers with them."""
    run_trainers(story)
    story.settle()


def finish(story: Story) -> None:
    """Kubelets end what they were told to end."""
    story.end_stopped()
    finish_claims(story)
    story.settle()


def finish_claims(story: Story) -> None:
    """Kubernetes' own controller frees the claims of Pods that have ended."""
    for (kind, _, name), pod in story.objects.items():
        claim = story.objects.get(("ResourceClaim", "team-b", name))
        if kind == "Pod" and pod["status"]["phase"] == "Failed" and claim is not None:
            claim.pop("status", None)


def told(story: Story, name: str) -> tuple[str, str]:
    pending = story.status(name).pending
    return (pending.reason, pending.message) if pending is not None else ("", "")


pytestmark = pytest.mark.usefixtures("no_mistakes")


def ends(story: Story, name: str) -> list[tuple[int, str, bool]]:
    return [(each.number, each.reason, each.charged) for each in story.status(name).attempts]


@KINDS
def test_a_job_of_high_priority_takes_the_room_of_a_low_one(kind: Any) -> None:
    story = site(kind, job("low"))
    assert story.status("low").state is State.RUNNING
    story.add(job("urgent", **HIGH))
    story.settle()
    assert ends(story, "low") == [(1, "Preempted", False)]
    assert told(story, "urgent")[0] == PendingReason.PREEMPTION_PENDING
    assert not [name for name in story.pods() if name.startswith("urgent")]
    finish(story)
    begin(story)
    assert story.status("urgent").state is State.RUNNING
    assert story.status("low").state is State.RESTARTING
    assert told(story, "low")[0] == PendingReason.INSUFFICIENT_GPUS
    placement = story.status("urgent").placement
    assert placement is not None
    assert placement.awaits is None


def marks(story: Story, pod: str) -> list[tuple[str, str, str]]:
    """Of that Pod, as other controllers read them."""
    conditions = story.pod(pod)["status"]["conditions"]
    told = [each for each in conditions if each["type"] == "DisruptionTarget"]
    return [(each["status"], each["reason"], each["message"]) for each in told]


ROOM = [("True", "PreemptionByScheduler", "closeknit: its TrainingJob makes room for another one")]


@pytest.mark.parametrize("kept", [0, 8], ids=["ended", "shrunk"])
def test_each_pod_says_that_it_is_preempted_before_it_ends(kept: int) -> None:
    elastic = {"elastic": {"minGPUs": kept}} if kept else {}
    story = site(plugin_node, job("low", 16, **elastic), nodes=2)
    story.add(job("urgent", **HIGH))
    story.settle()
    pods = ["low-a1-worker-00000", "low-a1-worker-00001"]
    assert [marks(story, pod) for pod in pods] == [ROOM, ROOM]
    for pod in pods:
        assert story.written.index(f"mark Pod {pod}") + 1 == story.written.index(f"stop Pod {pod}")
    finish(story)
    begin(story)
    assert (ends(story, "low"), story.status("urgent").state) == (
        [(1, "Shrunk" if kept else "Preempted", False)],
        State.RUNNING,
    )
    assert [each for each in story.written if each.startswith("mark")] == [f"mark Pod {pod}" for pod in pods]


def test_an_operator_that_was_killed_before_marks_the_pods_then() -> None:
    story = site(plugin_node, job("low"))
    story.add(job("urgent", **HIGH))
    story.settle()
    pod = story.pod("low-a1-worker-00000")
    del pod["spec"]["activeDeadlineSeconds"]
    pod["status"]["conditions"].pop()
    story.answers.clear()
    story.settle()
    assert (marks(story, "low-a1-worker-00000"), story.written[-2:]) == (
        ROOM,
        ["mark Pod low-a1-worker-00000", "stop Pod low-a1-worker-00000"],
    )


def test_a_pod_that_kubernetes_ends_anyway_is_not_marked_twice() -> None:
    story = site(plugin_node, job("low"))
    story.add(job("urgent", **HIGH))
    story.settle()
    del story.pod("low-a1-worker-00000")["spec"]["activeDeadlineSeconds"]
    story.settle()
    assert story.written.count("stop Pod low-a1-worker-00000") == 2
    assert story.written.count("mark Pod low-a1-worker-00000") == 1


def awaited(story: Story, name: str = "urgent") -> list[str]:
    placement = story.status(name).placement
    return [each.name for each in placement.awaits or ()] if placement is not None else []


def test_it_waits_for_a_pod_that_ignores_its_end_and_names_it() -> None:
    story = site(plugin_node, job("low"))
    story.add(job("urgent", **HIGH))
    story.settle()
    story.dead.add("gpu-1")  # whose kubelet confirms no end, and which is Ready
    story.pass_time(70)  # past the grace period, so that the Pod is deleted, too
    story.settle()
    reason, message = told(story, "urgent")
    assert reason == PendingReason.PREEMPTION_PENDING
    assert message == (
        "team-b/low makes room for it, by priority; it starts once its Pods are gone; left is Pod "
        "team-b/low-a1-worker-00000 on node gpu-1"
    )
    assert story.pods() == ["low-a1-worker-00000"]
    story.remove_pod("low-a1-worker-00000")
    story.settle()
    begin(story)
    assert story.status("urgent").state is State.RUNNING


def test_jobs_of_other_namespaces_are_not_named() -> None:
    story = site(plugin_node, job("low"))
    urgent = job("urgent", **HIGH)
    urgent["metadata"]["namespace"] = "prod"
    story.add(urgent)
    story.settle()
    (end,) = story.status("low").attempts
    assert "makes room for a job of another namespace, which has a higher priority" in (end.message or "")
    story.dead.add("gpu-1")  # whose kubelet confirms no end, and which is Ready
    story.pass_time(70)
    story.settle()
    pending = story.status("urgent", "prod").pending
    assert pending is not None
    assert pending.message == (
        "a job of another namespace makes room for it, by priority; it starts once its Pods are gone; left is a Pod of "
        "another namespace on node gpu-1"
    )
    assert not [each for each in story.notices if "prod" in each.note]


def test_nobody_else_gets_what_is_held_for_it() -> None:
    story = site(plugin_node, job("low"))
    story.add(job("urgent", **HIGH))
    story.settle()
    story.add(job("first", 4, **HIGH))
    story.objects["TrainingJob", "team-b", "first"]["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    finish(story)
    begin(story)
    assert (story.status("urgent").state, story.status("first").state) == (State.RUNNING, State.QUEUED)


@pytest.mark.parametrize("spec", [{}, {"priorityClassName": "meek"}, {"priorityClassName": "unknown"}])
def test_it_ends_nobody_without_a_class_that_may(spec: dict[str, Any]) -> None:
    story = site(plugin_node, job("low"))
    story.add(job("urgent", **spec))
    story.settle()
    assert (ends(story, "low"), told(story, "urgent")[0]) == ([], PendingReason.INSUFFICIENT_GPUS)


def test_a_default_class_that_never_preempts_holds_for_jobs_without_one() -> None:
    story = Story(
        *plugin_node("gpu-1"),
        priority_class("low", -10),
        priority_class("normal", 10, is_default=True, preempts=False),
        job("low", priorityClassName="low"),
    )
    story.settle()
    begin(story)
    story.add(job("other"))
    story.settle()
    assert (ends(story, "low"), told(story, "other")[0]) == ([], PendingReason.INSUFFICIENT_GPUS)


def test_nobody_goes_for_jobs_of_its_own_priority() -> None:
    story = site(plugin_node, job("low", **HIGH))
    for number in range(30):
        story.add(job(f"urgent-{number}", **HIGH))
    story.settle()
    assert ends(story, "low") == []


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"suspend": True}, ""),
        ({"gpus": 16, "elastic": {"minGPUs": 8}, "spares": 1}, "NotSupported"),
        ({"template": {"spec": {"containers": []}}}, "TemplateInvalid"),
        ({"topology": {"fabric": {"required": "planet"}}}, "UnknownLevel"),
        ({"gpus": 16}, "InsufficientGPUs"),
    ],
)
def test_nobody_goes_for_a_job_that_would_be_refused(spec: dict[str, Any], reason: str) -> None:
    story = site(plugin_node, job("low"))
    story.add(job("urgent", **{"gpus": 8, **HIGH, **spec}))
    story.settle()
    assert (ends(story, "low"), told(story, "urgent")[0]) == ([], reason)
    assert story.status("low").state is State.RUNNING


def test_nobody_goes_for_a_job_that_admission_refuses() -> None:
    story = site(plugin_node, job("low"))
    story.forbidden["urgent-a1-worker-00000"] = "violates PodSecurity"
    story.add(job("urgent", **HIGH))
    for _ in range(3):
        story.settle()
        story.pass_time(60)
    assert (ends(story, "low"), told(story, "urgent")[0]) == ([], PendingReason.TEMPLATE_INVALID)


def test_what_was_refused_of_a_gang_is_asked_before_others_make_room_for_it_again() -> None:
    """A policy takes every Pod but that of rank 1, and only the first one is asked before anybody ends."""
    story = site(plugin_node, job("low"), nodes=2)
    story.forbidden["urgent-a1-worker-00001"] = "no rank 1 here"
    story.add(job("urgent", **{**HIGH, "gpus": 16}))
    live(story, minutes=5)
    assert len(ends(story, "low")) == 1
    live(story, minutes=130)
    assert (len(ends(story, "low")), told(story, "urgent")[0]) == (1, PendingReason.TEMPLATE_INVALID)
    assert story.status("low").state is State.RUNNING
    story.forbidden.clear()
    live(story, minutes=70)
    assert (len(ends(story, "low")), story.status("urgent").state) == (2, State.RUNNING)


@pytest.mark.parametrize("scopes", [(), (ScopeRequirement("PriorityClass", "In", ["by-default"]),)])
def test_nobody_ends_for_one_that_a_quota_refuses_that_their_end_does_not_help(
    scopes: tuple[ScopeRequirement, ...],
) -> None:
    """Its Pods have a class or a request that they are given on their way: the quota counts what is not known here."""
    story = site(plugin_node, job("low"))
    story.quotas = [Quota("given", {"limits.cpu": "0"}, {"limits.cpu": "0"}, scopes)]
    by_quota = "exceeded quota: given, requested: limits.cpu=1, used: limits.cpu=0, limited: limits.cpu=0"
    story.forbidden["urgent-a1-worker-00000"] = by_quota
    story.add(job("urgent", **HIGH))
    live(story, minutes=70)
    assert (ends(story, "low"), story.status("urgent").placement) == ([], None)


def test_who_is_refused_after_others_made_room_ends_them_once_an_hour() -> None:
    """A webhook lets a Pod pass on trial, and refuses it then."""
    story = site(plugin_node, job("low"))
    story.forbidden["urgent-a1-worker-00000"] = "says no"
    story.passing_on_trial = True
    story.add(job("urgent", **HIGH))
    live(story, minutes=50)
    assert len(ends(story, "low")) == 1
    assert story.status("low").state is State.RUNNING
    live(story, minutes=15)
    assert len(ends(story, "low")) == 2
    story.forbidden.clear()
    story.edit_job("urgent", priorityClassName="high")  # a change of the job is tried at once
    live(story, minutes=2)
    assert story.status("urgent").state is State.RUNNING


def live(story: Story, *, minutes: int) -> None:
    """Whatever is written is done."""
    for _ in range(minutes):
        story.settle()
        finish(story)
        begin(story)
        story.pass_time(60)


def test_nobody_goes_for_a_better_fit_than_it_asks() -> None:
    story = site(plugin_node, job("low"), nodes=2)
    story.add(job("urgent", **HIGH, topology={"gpusPerNode": 8}))
    story.settle()
    assert (ends(story, "low"), story.status("urgent").state) == ([], State.STARTING)


def test_the_dearer_of_two_stays() -> None:
    story = site(plugin_node, job("old", topology={"gpusPerNode": 8}), nodes=2)
    story.pass_time(600)
    story.add(job("young"))
    story.settle()
    begin(story)
    story.pass_time(60)
    story.add(job("urgent", **HIGH))
    story.settle()
    assert (ends(story, "old"), ends(story, "young")) == ([], [(1, "Preempted", False)])


def test_the_ended_job_keeps_its_age_and_is_not_charged() -> None:
    story = site(plugin_node, job("low", restart={"limit": 0}))
    story.objects["TrainingJob", "team-b", "low"]["metadata"]["creationTimestamp"] = "2026-11-01T00:00:00Z"
    story.add(job("urgent", **HIGH))
    story.settle()
    story.add(job("later"))
    finish(story)
    begin(story)
    story.change_pod("urgent-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert (story.status("low").state, story.status("later").state) == (State.STARTING, State.QUEUED)
    assert story.status("low").charges is None
    (notice,) = [each for each in story.notices if each.reason == "Preempted"]
    assert "makes room for team-b/urgent" in notice.note


@pytest.mark.parametrize("after", ["stored", "told"])
@pytest.mark.parametrize("how", ["suspended", "deleted", "gone"])
def test_a_preemptor_that_vanishes_gives_back(after: str, how: str) -> None:
    story = site(plugin_node, job("low"))
    story.add(job("urgent", **HIGH))
    story.write_once()  # the booking
    assert awaited(story) == ["low"]
    if after == "told":
        story.settle()
    match how:
        case "suspended":
            story.edit_job("urgent", suspend=True)
        case "deleted":
            story.objects["TrainingJob", "team-b", "urgent"]["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
        case _:
            del story.objects["TrainingJob", "team-b", "urgent"]
    story.settle()
    if after == "stored":
        assert (ends(story, "low"), story.status("low").state) == ([], State.RUNNING)
    else:
        finish(story)
        story.objects.pop(("TrainingJob", "team-b", "urgent"), None) if how != "suspended" else None
        story.settle()
        begin(story)
        assert ends(story, "low") == [(1, "Preempted", False)]
        assert (story.status("low").state, story.status("low").attempt) == (State.RUNNING, 2)
    if how == "suspended":
        assert (story.status("urgent").placement, story.status("urgent").attempts) == (None, [])


def test_two_that_want_the_same_room_do_not_end_more_than_needed() -> None:
    story = site(plugin_node, job("one", 4), job("two", 4))
    story.add(job("first", 4, **HIGH))
    story.add(job("second", 4, **HIGH))
    story.settle()
    assert (awaited(story, "first"), awaited(story, "second")) == (["one"], ["two"])
    story.add(job("third", 4, **HIGH))
    story.settle()
    assert awaited(story, "third") == []
    finish(story)
    begin(story)
    assert [story.status(name).state for name in ("first", "second", "third")] == [
        State.RUNNING, State.RUNNING, State.QUEUED,
    ]  # fmt: skip


def test_no_one_makes_room_twice_or_for_one_that_makes_room() -> None:
    """No chains: a higher one finds no victim in a job that waits for others, nor in these."""
    story = site(plugin_node, job("low"))
    story.add(priority_class("highest", 1000))
    story.add(job("urgent", **HIGH))
    story.settle()
    story.add(job("king", priorityClassName="highest"))
    story.settle()
    assert awaited(story, "king") == []
    assert awaited(story) == ["low"]
    finish(story)
    begin(story)
    assert ends(story, "urgent") == [(1, "Preempted", False)]  # it runs now, and may go as any other
    assert len(ends(story, "low")) == 1


def test_a_class_that_is_deleted_meanwhile_ends_nobody() -> None:
    story = site(plugin_node, job("low"))
    story.add(job("urgent", **HIGH))
    story.write_once()
    del story.objects["PriorityClass", "", "high"]
    story.settle()
    assert (ends(story, "low"), awaited(story)) == ([], [])
    assert told(story, "urgent")[0] == PendingReason.INSUFFICIENT_GPUS


def test_room_that_comes_free_is_taken_before_anybody_goes() -> None:
    story = site(plugin_node, job("low"), job("other", **HIGH), nodes=2)
    story.add(job("urgent", **HIGH))
    story.write_once()
    (other,) = [name for name in story.pods() if name.startswith("other")]
    story.change_pod(other, phase="Succeeded")
    for _ in range(2):
        story.settle()
    assert (ends(story, "low"), story.status("urgent").state) == ([], State.STARTING)


def test_room_that_is_kept_for_a_job_before_it_is_not_taken() -> None:
    """The first job of the queue ends nobody, and waits for half a node that comes free later than the other half."""
    story = site(plugin_node, job("long", 4, expectedDuration="1h"), job("short", 4, expectedDuration="30m"), nodes=2)
    story.add(job("top", 4, **HIGH))
    story.settle()
    begin(story)
    story.pass_time(60)
    story.add(job("low", 4))
    story.settle()
    begin(story)
    story.add(job("first", priorityClassName="meek", topology={"gpusPerNode": 8}))
    story.add(priority_class("middle", 50))
    story.add(job("urgent", 4, priorityClassName="middle"))
    story.settle()
    assert awaited(story) == ["low"]
    story.change_pod("short-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert awaited(story) == ["low"]
    finish(story)
    begin(story)
    assert story.status("urgent").state is State.RUNNING
    story.change_pod("long-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert story.status("first").state is State.STARTING


def test_others_go_where_the_cheapest_stand_on_room_that_is_kept() -> None:
    """Who began last ends in time for the first job of the queue, which ends nobody."""
    story = site(plugin_node, job("old"), nodes=2)
    story.pass_time(600)
    story.add(job("young", expectedDuration="1h"))
    story.settle()
    begin(story)
    story.pass_time(60)
    story.add(job("first", priorityClassName="meek"))
    story.add(priority_class("middle", 50))
    story.add(job("urgent", priorityClassName="middle"))
    story.settle()
    assert awaited(story) == ["old"]


def test_its_own_room_is_its_own_though_the_first_job_is_to_have_it_later() -> None:
    """A job on the other node is late, so that nobody passes by a declaration."""
    story = site(plugin_node, job("late", **HIGH, expectedDuration="10m"), job("low"), nodes=2)
    story.pass_time(3600)
    story.add(job("first", 16, priorityClassName="meek", topology={"gpusPerNode": 8}))
    story.add(priority_class("middle", 50))
    story.add(job("urgent", priorityClassName="middle", expectedDuration="1h"))
    story.settle()
    assert awaited(story) == ["low"]
    finish(story)
    begin(story)
    assert story.status("urgent").state is State.RUNNING


@pytest.mark.parametrize("late_s", [0, 3660])
def test_a_long_grace_period_keeps_nobody_from_making_room(late_s: int) -> None:
    """It would end within its grace period, as it declares, and later still once it runs longer than that."""
    template = {"spec": {"terminationGracePeriodSeconds": 10**7, "containers": [{"name": "trainer", "image": "x"}]}}
    story = site(plugin_node, job("low", expectedDuration="1h", template=template))
    story.pass_time(late_s)
    story.add(job("urgent", **HIGH))
    story.settle()
    assert awaited(story) == ["low"]


def test_a_node_that_dies_meanwhile_is_replaced_by_what_the_others_leave() -> None:
    story = site(plugin_node, job("wide", 16, topology={"gpusPerNode": 8}), nodes=2)
    story.add(job("urgent", **HIGH))
    story.settle()
    placement = story.status("urgent").placement
    assert placement is not None
    (share,) = placement.nodes
    story.lose_node(share.name)
    story.settle()
    placement = story.status("urgent").placement
    assert placement is not None
    assert [each.name for each in placement.nodes] == [({"gpu-1", "gpu-2"} - {share.name}).pop()]
    assert awaited(story) == ["wide"]


def test_a_node_that_dies_meanwhile_takes_others_only_if_it_must() -> None:
    story = site(plugin_node, job("one"), job("two"), nodes=2)
    story.add(job("urgent", **HIGH))
    story.settle()
    (first,) = awaited(story)
    placement = story.status("urgent").placement
    assert placement is not None
    story.lose_node(placement.nodes[0].name)
    story.settle()
    assert awaited(story) == [first]  # it may be back in a moment
    story.pass_time(61)
    story.settle()
    assert awaited(story) == [first, ({"one", "two"} - {first}).pop()]
    assert [len(ends(story, name)) for name in ("one", "two")] == [1, 1]


def test_a_quota_that_those_who_go_fill_does_not_keep_it_out() -> None:
    story = site(plugin_node, job("low"))
    story.quotas = [Quota("gpus", {"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "8"})]
    story.add(job("urgent", **HIGH))
    story.settle()
    assert awaited(story) == ["low"]
    story.quotas = [Quota("gpus", {"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "0"})]
    finish(story)
    begin(story)
    assert story.status("urgent").state is State.RUNNING


def test_nobody_goes_for_a_job_that_a_quota_refuses() -> None:
    story = site(plugin_node, job("low"))
    story.quotas = [Quota("gpus", {"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "0"})]
    story.add(job("urgent", **HIGH))
    for _ in range(4):
        story.settle()
        story.pass_time(30)
    assert (ends(story, "low"), told(story, "urgent")[0]) == ([], PendingReason.QUOTA_EXCEEDED)


@KINDS
def test_the_operator_may_end_between_any_two_writes(kind: Any) -> None:
    """One that knows nothing but the objects goes on where the last one ended, and ends nobody else."""
    story = site(kind, job("low"), job("other"), nodes=2)
    story.add(job("urgent", **HIGH))
    chance = Random(1)  # noqa: S311 - lives that can be lived again
    for _ in range(60):
        story.answers.clear()
        plans = [plan for plan in story.plans() if plan.writes]
        if not plans:
            story.end_stopped()
            finish_claims(story)
            story.run_all()
            story.answers.clear()
            plans = [plan for plan in story.plans() if plan.writes]
        if not plans:
            break
        for plan in plans:
            whole = parts(plan)
            for part in whole[: chance.randint(1, len(whole))]:  # and there it ends
                story.answers.clear()
                story.write(part)
    assert story.status("urgent").state is State.RUNNING
    assert sorted(len(ends(story, name)) for name in ("low", "other")) == [0, 1]


def parts(plan: Plan) -> list[Plan]:
    """Its writes one by one."""
    first = replace(plan, opening=(), actions=(), notice=None)
    each = [replace(plan, status=None, demand=None, probes=(), opening=(), actions=(one,)) for one in plan.actions]
    begun = [replace(plan, status=None, demand=None, probes=(), opening=(one,), actions=()) for one in plan.opening]
    return [*([first] if plan.status is not None else []), *begun, *each]


def test_what_one_gives_up_for_another_place_is_nobody_elses_before_that_is_stored() -> None:
    """The first finds a free node and leaves the one that it waits for. A job that went for it would have its node back
    in the same decision, though the second needs it more; and were the operator killed between the two writes, both
    would have it."""
    story = site(plugin_node, job("peer", **HIGH), job("low-1"), job("low-2"), nodes=3)
    story.add(priority_class("middle", 50))
    for name, urgent in (("first", "high"), ("second", "middle")):
        story.add(job(name, priorityClassName=urgent))
        story.settle()
    before = {name: places(story, name) for name in ("peer", "first", "second")}
    assert sorted(before.values()) == [["gpu-1"], ["gpu-2"], ["gpu-3"]]
    story.change_pod("peer-a1-worker-00000", phase="Succeeded")
    story.lose_node(before["second"][0])
    story.pass_time(61)
    cluster = story.cluster
    over = cluster.with_job(unbooked(cluster.jobs[JobKey("team-b", "peer")]))
    found = decide(over, story.tables, Memory(story.answers), story.now).schedule
    booked = {key.name: verdict.placement.shares for key, verdict in found.items() if isinstance(verdict, Book)}
    assert {name: [share.node for share in shares] for name, shares in booked.items()} == {"first": before["peer"]}
    story.settle()
    assert sorted([places(story, "first"), places(story, "second")]) == sorted([before["peer"], before["first"]])


def places(story: Story, name: str) -> list[str]:
    placement = story.status(name).placement
    return [] if placement is None else [share.name for share in placement.nodes]


@KINDS
def test_a_gang_that_waits_for_its_own_pods_is_left_alone_until_it_is_stored_that_it_makes_room(kind: Any) -> None:
    """Who gets its GPUs may be refused."""
    story = site(kind, job("low", 16), nodes=2)
    story.mark_deleted("low-a1-worker-00000", grace_s=300)
    story.settle()
    assert (story.status("low").attempt, story.status("low").state) == (2, State.STARTING)
    story.pass_time(10)
    story.settle()
    story.add(job("first", **HIGH))  # by name, too: of two who book a GPU that one is its holder
    assert [plan.job.name for plan in story.plans() if plan.writes] == ["first"]
    story.settle()
    assert [reason for _, reason, _ in ends(story, "low")] == ["ChildDeleted", "Preempted"]


def test_pods_that_nobody_has_stopped_end_though_a_quota_counts_them() -> None:
    """The operator ended between the end of their attempt and their own, and nobody else wants their GPUs any more."""
    story = site(plugin_node, job("low"))
    story.add(job("urgent", **HIGH))
    story.settle()
    low = story.pod("low-a1-worker-00000")
    del low["spec"]["activeDeadlineSeconds"]
    del story.objects["TrainingJob", "team-b", "urgent"]
    story.quotas = [Quota("team", {"pods": "1"}, {"pods": "1"})]
    story.settle()
    assert low["spec"]["activeDeadlineSeconds"] == 1
    story.end_stopped()
    story.quotas = [Quota("team", {"pods": "1"}, {"pods": "0"})]
    story.settle()
    story.pass_time(60)
    story.settle()
    begin(story)
    assert story.status("low").state is State.RUNNING
