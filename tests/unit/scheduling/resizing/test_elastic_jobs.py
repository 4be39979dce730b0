"""An elastic job starts with what is there, grows where there has been room, and shrinks rather than wait."""

from dataclasses import replace
from typing import Any

import pytest

from closeknit.api.names import IMEX_CHANNELS
from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.cluster.objects.silence import Quiet
from closeknit.lifecycle.writes.plan import Plan
from closeknit.lifecycle.writes.resource_quotas import Quota
from closeknit.scheduling.policy.probation import BETWEEN
from scenarios.manifests import cluster_topology, device_class, priority_class, training_job
from scenarios.manifests import pod as foreign_pod
from scenarios.restarting_gangs import begins, running
from scenarios.stories import placement, run_trainers
from scenarios.story import Story, dra_node, plugin_node

KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])
HIGH: dict[str, Any] = {"priorityClassName": "high"}
MINUTE = 60
ROOM_LASTS = 5 * MINUTE

pytestmark = pytest.mark.usefixtures("no_mistakes")


def site(*jobs: dict[str, Any], kind: Any = plugin_node, nodes: int = 4) -> Story:
    """So many nodes of eight GPUs, and jobs that run there."""
    machines = [each for number in range(1, nodes + 1) for each in kind(f"gpu-{number}")]
    story = Story(*machines, priority_class("high", 100), *jobs)
    begin(story)
    return story


def elastic(name: str = "train", gpus: int = 32, least: int = 8, **spec: Any) -> dict[str, Any]:
    return training_job(name, spec={"gpus": gpus, "elastic": {"minGPUs": least}, **spec})


def fixed(name: str, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    return training_job(name, spec={"gpus": gpus, **spec})


def begin(story: Story) -> None:
    """What has to end ends, and all Pods that are there run."""
    for _ in range(3):
        story.settle()
        story.end_stopped()
        free_claims(story)
        story.settle()
        run_trainers(story)
    story.settle()


def free_claims(story: Story) -> None:
    """Kubernetes' own controller frees the claims of Pods that have ended."""
    for (kind, _, name), pod in story.objects.items():
        claim = story.objects.get(("ResourceClaim", "team-b", name))
        if kind == "Pod" and pod["status"]["phase"] == "Failed" and claim is not None:
            claim.pop("status", None)


def finish(story: Story, job: str) -> None:
    """The job is deleted, and its Pods with it."""
    del story.objects["TrainingJob", "team-b", job]
    for name in [name for name in story.pods() if name.startswith(f"{job}-a")]:
        story.remove_pod(name)


def size(story: Story, name: str = "train") -> int:
    return sum(len(node.gpus) for node in placement(story, name).nodes)


def ends(story: Story, name: str = "train") -> list[tuple[str, bool]]:
    return [(each.reason, each.charged) for each in story.status(name).attempts]


def world_sizes(story: Story, attempt: int) -> set[str]:
    """What the Pods of one attempt are told."""
    pods = [story.pod(name) for name in story.pods() if f"train-a{attempt}-" in name]
    env = [entry for pod in pods for entry in pod["spec"]["containers"][0]["env"]]
    return {entry["value"] for entry in env if entry["name"] == "CLOSEKNIT_WORLD_SIZE"}


def small(**spec: Any) -> Story:
    """An elastic job of 32 that runs with 24, beside one of 8."""
    story = site(fixed("other"))
    story.add(elastic(**spec))
    story.settle()
    story.pass_time(MINUTE)
    begin(story)
    assert size(story) == 24
    return story


@KINDS
def test_it_starts_with_fewer_once_it_has_waited_for_all(kind: Any) -> None:
    story = site(fixed("other"), kind=kind)
    story.add(elastic())
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == PendingReason.INSUFFICIENT_GPUS
    assert pending.message.endswith(
        "; after a minute it starts with fewer, 8 at least, where so many fit and delay nobody"
    )
    story.pass_time(MINUTE - 1)
    story.settle()
    assert story.status().placement is None
    story.pass_time(1)
    begin(story)
    assert (story.status().state, size(story), placement(story).gpus) == (State.RUNNING, 24, 24)
    assert world_sizes(story, 1) == {"24"}
    assert story.status().reason == "FewerGPUs"
    assert story.status().message == (
        "runs with 24 of its 32 GPUs, and grows once there has been room for more for 5 minutes, and nobody before it "
        "waits for that"
    )


def test_one_whose_name_is_taken_with_fewer_is_told_so_and_no_room_is_kept_for_it() -> None:
    story = site(fixed("other", expectedDuration="1h"))
    story.add(foreign_pod("train-a1-worker-00000", namespace="team-b", node=None, requests={}))
    story.add(elastic())
    story.settle()
    story.pass_time(MINUTE)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert (pending.reason, pending.estimated_start) == (PendingReason.NAME_CONFLICT, None)
    story.add(fixed("later", 24))
    story.settle()
    assert size(story, "later") == 24


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"elastic": {"minGPUs": 8}}, id="it might start with fewer GPUs"),
        pytest.param(HIGH, id="it might preempt another job"),
    ],
)
def test_a_taken_name_stays_told_while_another_of_the_namespace_is_refused(spec: dict[str, Any]) -> None:
    """Nobody of the namespace is tried for a moment then: it was told of GPUs, and a minute later of the name again."""
    story = site(fixed("other", 24), nodes=5)
    story.add(foreign_pod("train-a1-worker-00000", namespace="team-b", node=None, requests={}))
    story.add(fixed("train", 32, **spec))
    story.settle()
    story.pass_time(MINUTE)
    story.settle()
    told = story.status()
    assert told.reason == PendingReason.NAME_CONFLICT
    story.forbidden["first-a1-worker-00000"] = "denied"
    story.add(fixed("first", 8))
    story.pass_time(MINUTE + 1)
    story.settle()
    assert story.status("first").reason == PendingReason.TEMPLATE_INVALID
    assert (story.status().reason, story.status().message) == (told.reason, told.message)
    wake_at = story.decide().schedule.wake_at
    assert wake_at is not None
    assert wake_at <= story.now + BETWEEN


def test_one_that_fits_starts_with_all_at_once() -> None:
    story = site(elastic())
    assert (size(story), placement(story).gpus, story.status().reason) == (32, None, None)


def test_no_size_breaks_a_group_or_goes_below_the_least() -> None:
    story = site(fixed("other", 5), nodes=1)
    story.add(elastic(gpus=8, least=2, parallelism={"tensor": 2}))
    story.add(elastic("least", gpus=8, least=4))
    story.settle()
    story.pass_time(MINUTE)
    begin(story)
    assert size(story) == 2
    assert story.status("least").placement is None


@KINDS
def test_it_grows_where_there_was_room_for_a_while(kind: Any) -> None:
    story = site(fixed("other"), kind=kind)
    story.add(elastic())
    story.settle()
    story.pass_time(MINUTE)
    begin(story)
    finish(story, "other")
    story.settle()
    room = placement(story).room
    assert room is not None
    assert room.gpus == 32
    assert story.status().message == (
        f"runs with 24 of its 32 GPUs; there is room for 32 since {room.since}, and it grows after 5 minutes"
    )
    story.pass_time(ROOM_LASTS - 1)
    begin(story)
    assert (size(story), ends(story)) == (24, [])
    story.pass_time(1)
    story.settle()
    assert (size(story), ends(story)) == (32, [("Grown", False)])
    begin(story)
    assert (story.status().state, placement(story).gpus, placement(story).room) == (State.RUNNING, None, None)
    assert world_sizes(story, 2) == {"32"}
    (notice,) = [each for each in story.notices if each.reason == "Grown"]
    assert notice.note == (
        "grows from 24 to 32 of its 32 GPUs, for there has been room for more of them for 5 minutes; it starts again "
        "in new Pods, and is not charged for this"
    )


def test_room_that_goes_counts_from_the_beginning() -> None:
    story = small()
    finish(story, "other")
    story.settle()
    story.pass_time(ROOM_LASTS - 1)
    story.add(fixed("next"))
    begin(story)
    assert (placement(story).room, story.status("next").state) == (None, State.RUNNING)
    finish(story, "next")
    story.settle()
    story.pass_time(ROOM_LASTS - 1)
    begin(story)
    assert ends(story) == []


def test_it_never_grows_past_a_job_of_its_priority_that_waits() -> None:
    story = small()
    story.add(fixed("large", 16))
    story.settle()
    finish(story, "other")
    story.settle()
    assert placement(story).room is None
    story.pass_time(2 * ROOM_LASTS)
    begin(story)
    assert (size(story), ends(story)) == (24, [])


def test_a_job_that_no_cluster_could_hold_keeps_nobody_small() -> None:
    story = small()
    story.add(fixed("giant", 4096))
    story.settle()
    finish(story, "other")
    story.settle()
    story.pass_time(ROOM_LASTS)
    begin(story)
    assert size(story) == 32


def test_it_grows_twice_an_hour_at_most() -> None:
    story = site(*(fixed(f"other-{number}") for number in range(1, 5)), nodes=5)
    story.add(elastic(gpus=40))
    story.settle()
    story.pass_time(MINUTE)
    begin(story)
    sizes = [size(story)]
    for number in range(1, 5):
        finish(story, f"other-{number}")
        story.settle()
        story.pass_time(ROOM_LASTS)
        begin(story)
        sizes.append(size(story))
    assert sizes == [8, 16, 24, 24, 24]
    story.pass_time(3600)
    begin(story)
    story.pass_time(ROOM_LASTS)
    begin(story)
    assert size(story) == 40


def test_a_quota_that_has_too_little_left_leaves_it_as_it_is() -> None:
    story = small()
    finish(story, "other")
    story.settle()
    story.quotas = [Quota("gpus", {"requests.nvidia.com/gpu": "24"}, {"requests.nvidia.com/gpu": "24"})]
    story.pass_time(ROOM_LASTS)
    begin(story)
    assert (story.status().state, size(story), ends(story)) == (State.RUNNING, 24, [])


@KINDS
def test_it_gives_its_surplus_to_a_job_of_higher_priority(kind: Any) -> None:
    story = site(elastic(), kind=kind)
    story.add(fixed("urgent", 16, **HIGH))
    story.settle()
    assert ends(story) == [("Shrunk", False)]
    assert (story.status().attempts[0].message or "").startswith(
        "gives 16 of its 32 GPUs to team-b/urgent, which has a higher priority, and goes on with 16"
    )
    begin(story)
    assert (story.status("urgent").state, story.status().state) == (State.RUNNING, State.RUNNING)
    assert (size(story, "urgent"), size(story)) == (16, 16)
    assert world_sizes(story, 2) == {"16"}
    assert placement(story, "urgent").awaits is None


def test_it_ends_as_a_whole_where_its_least_size_is_not_left() -> None:
    story = site(elastic(least=24))
    story.add(fixed("urgent", 16, **HIGH))
    begin(story)
    assert ends(story) == [("Preempted", False)]
    assert story.status().placement is None


def test_of_two_that_lose_as_much_the_elastic_one_goes() -> None:
    story = site(fixed("a-rigid", 16), elastic("b-elastic", 16))
    story.add(fixed("urgent", 8, **HIGH))
    begin(story)
    assert (ends(story, "a-rigid"), ends(story, "b-elastic")) == ([], [("Shrunk", False)])


@KINDS
def test_it_goes_on_without_a_node_that_nothing_replaces(kind: Any) -> None:
    story = site(elastic(), kind=kind)
    story.lose_node("gpu-2")
    story.silence("gpu-2", Quiet.LONG)
    begin(story)
    assert ends(story) == [("NodeLost", False)]
    assert (story.status().state, size(story)) == (State.RUNNING, 24)
    assert "gpu-2" not in [node.name for node in placement(story).nodes]
    story.recover_node("gpu-2")
    del story.silent["gpu-2"]
    for name in [name for name in story.pods() if "train-a1-" in name]:
        story.remove_pod(name)
    begin(story)
    story.pass_time(20 * MINUTE)
    begin(story)
    story.pass_time(ROOM_LASTS)
    begin(story)
    assert size(story) == 32


def test_a_job_that_is_not_elastic_waits_as_ever() -> None:
    story = site(fixed("other"))
    story.add(fixed("train", 32))
    story.settle()
    story.pass_time(60 * MINUTE)
    begin(story)
    assert story.status().placement is None


def ready_to_grow(kind: Any) -> Story:
    story = site(fixed("other"), kind=kind)
    story.add(elastic())
    story.settle()
    story.pass_time(MINUTE)
    begin(story)
    finish(story, "other")
    story.settle()
    story.pass_time(ROOM_LASTS)
    return story


def ready_to_shrink(kind: Any) -> Story:
    story = site(elastic(), kind=kind)
    story.add(fixed("urgent", 8, **HIGH))
    story.write_once()
    return story


def next_plan(story: Story) -> Plan:
    (plan,) = [plan for plan in story.plans() if plan.writes and plan.job.name == "train"]
    return plan


@KINDS
@pytest.mark.parametrize(("ready", "reason", "gpus"), [(ready_to_grow, "Grown", 32), (ready_to_shrink, "Shrunk", 24)])
def test_a_resize_is_finished_by_the_next_operator(kind: Any, ready: Any, reason: str, gpus: int) -> None:
    """Whichever of its writes were the last ones of the operator before."""
    writes = len(next_plan(ready(kind)).actions)
    assert writes > 2
    for done in range(writes + 1):
        story = ready(kind)
        plan = next_plan(story)
        story.write(replace(plan, actions=plan.actions[:done], notice=None))
        story.answers.clear()
        begin(story)
        assert (ends(story), size(story), story.status().state) == ([(reason, False)], gpus, State.RUNNING)
        assert story.status().restarts == 1
        assert {name for name in story.pods() if story.pod(name)["status"]["phase"] == "Running"} >= {
            f"train-a2-worker-{index:05d}" for index in range(gpus // 8)
        }
        assert not [
            name for name in story.pods() if "train-a1" in name and story.pod(name)["status"]["phase"] == "Running"
        ]


def test_it_is_resized_once_by_two_operators_that_decide_alike() -> None:
    story = ready_to_grow(plugin_node)
    plan, again = next_plan(story), next_plan(story)
    story.write(plan)
    story.write(again)  # on the version before: refused
    begin(story)
    assert ends(story) == [("Grown", False)]


def test_a_gang_that_could_restart_in_place_gets_new_pods_for_another_size() -> None:
    story = running(nodes=3, gpus=24, elastic={"minGPUs": 8})
    story.lose_node("gpu-2")
    story.silence("gpu-2", Quiet.LONG)
    story.settle()
    story.end_stopped()
    story.settle()
    story.run_all()
    for pod in story.pods():
        if "-a2-" in pod:
            begins(story, pod, 0)
    story.settle()
    assert [node.name for node in placement(story).nodes] == ["gpu-1", "gpu-3"]
    assert (story.status().state, size(story), ends(story)) == (State.RUNNING, 16, [("NodeLost", False)])


def test_a_smaller_size_that_no_more_is_allowed_stays_until_it_restarts() -> None:
    story = small()
    story.edit_job(elastic={"minGPUs": 32})
    begin(story)
    assert (size(story), ends(story)) == (24, [])


def test_the_preemptor_is_placed_so_that_the_elastic_job_can_go_on() -> None:
    """By itself it would take both nodes of one rack, and leave the elastic job, which takes no others, too little."""
    machines = [each for number in (1, 2, 3) for each in plugin_node(f"gpu-{number}")]
    for manifest in machines:
        if manifest["kind"] == "Node":
            rack = "r1" if manifest["metadata"]["name"] == "gpu-3" else "r0"
            manifest["metadata"].setdefault("labels", {}).update({"net.example/rack": rack, "rack": rack})

    def only(rack: str) -> dict[str, Any]:
        return {"spec": {"nodeSelector": {"rack": rack}, "containers": [{"name": "trainer", "image": "train"}]}}

    story = Story(*machines, cluster_topology("rack"), priority_class("high", 100))
    story.add(elastic(gpus=16, least=8, template=only("r0")))
    story.add(fixed("other", 4, template=only("r1")))
    begin(story)
    story.add(fixed("urgent", 12, **HIGH))
    begin(story)
    assert [node.name for node in placement(story, "urgent").nodes] == ["gpu-2", "gpu-3"]
    assert (story.status("urgent").state, size(story), ends(story)) == (State.RUNNING, 8, [("Shrunk", False)])
    assert ends(story, "other") == []


def test_a_gang_with_nvlink_between_nodes_keeps_to_whole_ones() -> None:
    """A part of a node could not have it, and the gang would fall back to the network for two GPUs more."""
    machines = [each for number in (1, 2, 3) for each in dra_node(f"gpu-{number}")]
    for manifest in machines:
        if manifest["kind"] == "Node":
            manifest["metadata"].setdefault("labels", {})["nvidia.com/gpu.clique"] = "c0ffee.1"
        if manifest["kind"] == "NodeTopology":
            manifest["spec"]["nvlink"] = {"switched": True, "linksPerGPU": [18] * 8}
    story = Story(*machines, device_class(IMEX_CHANNELS), fixed("other", 4))
    begin(story)
    story.add(elastic(gpus=24, least=4))
    story.settle()
    story.pass_time(MINUTE)
    begin(story)
    assert (size(story), [len(node.gpus) for node in placement(story).nodes]) == (16, [8, 8])


def test_it_does_not_grow_once_ranks_are_over() -> None:
    story = small()
    finish(story, "other")
    story.settle()
    done = [{"name": "trainer", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]
    story.change_pod("train-a1-worker-00001", phase="Succeeded", containerStatuses=done)
    story.settle()
    story.pass_time(2 * ROOM_LASTS)
    story.settle()
    assert ends(story) == []


def test_a_job_whose_pods_are_refused_is_told_so_and_not_every_few_minutes_that_it_waits_for_room() -> None:
    story = site(fixed("other"))
    story.forbidden |= {f"train-a1-worker-{rank:05}": "policy no-ranks denies it" for rank in range(4)}
    story.add(elastic())
    story.settle()
    story.pass_time(5 * MINUTE)
    told = []
    for _ in range(40):
        story.settle()
        told.append(story.status("train").reason)
        story.pass_time(30)
    assert set(told[4:]) == {PendingReason.TEMPLATE_INVALID}
    story.forbidden.clear()
    for _ in range(11):
        story.pass_time(30)
        begin(story)
    assert size(story) == 24
