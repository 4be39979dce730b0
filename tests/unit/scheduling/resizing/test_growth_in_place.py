"""An elastic gang grows: its Pods stay and learn the size, and new ones come for the added nodes alone."""

import json
from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.writes.resource_quotas import Quota
from closeknit.lifecycle.writes.results import Denial, DenialKind
from scenarios.manifests import cluster_topology, training_job
from scenarios.restarting_gangs import TEMPLATE, allow, begins, fails_at_barrier, together, waits
from scenarios.stories import nodes, placement
from scenarios.story import Story, dra_node, plugin_node

KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])
MINUTE = 60
WORKERS = [f"train-a1-worker-{index:05d}" for index in range(3)]
ADDED = "train-a1-worker-00003-r1"

pytestmark = pytest.mark.usefixtures("no_mistakes")


def small(
    kind: Any = plugin_node, *, gpus: int = 32, number: int = 4, other: int = 8, racks: str = "", **spec: Any
) -> Story:
    """A job of 32 that runs with 24 and can restart in place, and a node that has come free. `racks`: of each node."""
    machines = [each for at in range(1, number + 1) for each in kind(f"gpu-{at}")]
    if racks:
        for each in machines:
            rack = {"net.example/rack": racks[int(each["metadata"]["name"].removeprefix("gpu-")) - 1]}
            each["metadata"].setdefault("labels", {}).update(rack)
        machines.append(cluster_topology("rack"))
    asked = {"gpus": gpus, "elastic": {"minGPUs": 8}, "template": TEMPLATE, "restart": {"limit": 2}, **spec}
    story = Story(*machines, training_job("other", spec={"gpus": other}))
    story.sidecar_image = "agent:1"
    allow(story)
    story.settle()
    story.add(training_job(spec=asked))
    story.settle()
    story.pass_time(MINUTE)
    story.settle()
    story.run_all()
    for pod in of_train(story):
        begins(story, pod, 0)
    story.settle()
    assert story.status().state is State.RUNNING
    del story.objects["TrainingJob", "team-b", "other"]
    for name in [name for name in story.pods() if name.startswith("other-")]:
        story.remove_pod(name)
    story.settle()
    story.written.clear()
    story.notices.clear()
    return story


def of_train(story: Story) -> list[str]:
    return [name for name in story.pods() if name.startswith("train-")]


def grow(story: Story) -> None:
    story.pass_time(5 * MINUTE)
    story.settle()


def size_of(story: Story, pod: str) -> str | None:
    found: str | None = story.pod(pod)["metadata"]["annotations"].get("closeknit.dev/size")
    return found


@KINDS
def test_its_pods_stay_and_only_the_added_node_gets_a_new_one(kind: Any) -> None:
    story = small(kind)
    before, uids = nodes(story), {name: story.pod(name)["metadata"]["uid"] for name in WORKERS}
    assert size_of(story, WORKERS[0]) == "3 24"
    grow(story)
    assert nodes(story)[:3] == before
    assert (story.status().attempt, placement(story).gpus, placement(story).replaced) == (1, None, {"3": 1})
    claims = [f"create ResourceClaim {ADDED}"] if kind is dra_node else []
    others = [each for each in story.written if not each.startswith("status")]
    assert sorted(each for each in others if "Service" not in each) == sorted(
        [f"resize Pod {WORKERS[0]}", f"create Pod {ADDED}", *claims]
    )
    assert [size_of(story, pod) for pod in WORKERS] == ["4 32", None, None]
    made = story.pod(ADDED)
    env = {each["name"]: each["value"] for each in made["spec"]["initContainers"][0]["env"]}
    told = json.loads(env["CLOSEKNIT_GANG"])
    assert (told["index"], told["size"], told["replacement"], made["spec"]["hostname"]) == (3, 4, 1, ADDED[:-3])
    together(story, 1)
    status = story.status()
    assert (status.state, placement(story).run, placement(story).swapping) == (State.RUNNING, 1, None)
    (row,) = status.attempts
    assert (row.reason, row.charged, row.in_place) == ("Grown", False, True)
    assert row.message is not None
    assert "it starts again in the Pods that it has and 1 new one, and is not charged" in row.message
    assert {name: story.pod(name)["metadata"]["uid"] for name in WORKERS} == uids
    assert not any(each.startswith("delete") for each in story.written)


def test_it_grows_twice_in_place() -> None:
    story = small(gpus=40)
    grow(story)
    together(story, 1)
    for each in plugin_node("gpu-5"):
        story.add(each)
    allow(story)
    story.settle()
    grow(story)
    assert (placement(story).replaced, size_of(story, WORKERS[0])) == ({"3": 1, "4": 1}, "5 40")
    together(story, 2)
    assert (story.status().attempt, story.status().state, placement(story).gpus) == (1, State.RUNNING, None)


def all_are_new(story: Story) -> None:
    """It has grown, in the Pods of the next attempt."""
    assert story.status().attempt == 2
    assert (placement(story).swapping, placement(story).replaced, placement(story).gpus) == (None, None, None)
    assert not any(each.startswith("resize") for each in story.written)
    (row,) = story.status().attempts
    assert row.message is not None
    assert (row.reason, row.in_place) == ("Grown", None)
    assert "it starts again in new Pods" in row.message


def with_command(*words: str, **more: Any) -> dict[str, Any]:
    trainer = {"name": "trainer", "image": "train", "command": [*words]}
    return {"spec": {"containers": [trainer], **more}}


@pytest.mark.parametrize(
    "spec",
    [
        {"framework": "DeepSpeed"},
        {"framework": "MPI"},
        {"framework": "TensorFlow"},
        {"framework": "Custom"},
        {"template": with_command("torchrun", "--nnodes=$(PET_NNODES)")},
        {"template": with_command("train", terminationGracePeriodSeconds=601)},
        {"template": with_command("sh", "-c", "$(CLOSEKNIT_WORLD_SIZE)")},
    ],
    ids=lambda spec: str(next(iter(spec.values())))[:60],
)
def test_what_cannot_learn_another_size_grows_in_new_pods(spec: dict[str, Any]) -> None:
    story = small(**spec)
    assert size_of(story, WORKERS[0]) is None
    grow(story)
    all_are_new(story)


def test_jax_is_told_the_number_of_its_processes() -> None:
    story = small(framework="JAX")
    env = {each["name"]: each["value"] for each in story.pod(WORKERS[0])["spec"]["initContainers"][0]["env"]}
    assert json.loads(env["CLOSEKNIT_GANG"])["sizes"] == {"JAX_NUM_PROCESSES": "{nodes}"}
    grow(story)
    assert story.status().attempt == 1


def test_a_variable_of_the_users_own_stays_as_it_is() -> None:
    template = with_command("train")
    template["spec"]["containers"][0]["env"] = [{"name": "PET_NNODES", "value": "1:4"}]
    story = small(template=template)
    env = {each["name"]: each["value"] for each in story.pod(WORKERS[0])["spec"]["initContainers"][0]["env"]}
    assert json.loads(env["CLOSEKNIT_GANG"])["sizes"] == {"CLOSEKNIT_WORLD_SIZE": "{ranks}"}
    grow(story)
    assert story.status().attempt == 1


def test_a_job_on_one_node_grows_in_new_pods() -> None:
    story = small(gpus=16, number=2)
    assert (of_train(story), size_of(story, WORKERS[0])) == (WORKERS[:1], None)
    grow(story)
    all_are_new(story)


def test_without_sidecars_all_pods_are_new() -> None:
    story = small(restart=None)
    grow(story)
    all_are_new(story)


def test_a_quota_is_asked_for_the_new_pods_alone() -> None:
    story = small()
    hard, used = {"pods": "4", "requests.nvidia.com/gpu": "32"}, {"pods": "3", "requests.nvidia.com/gpu": "24"}
    story.quotas = [Quota("gpus", hard, used)]
    grow(story)
    assert (story.status().attempt, placement(story).replaced) == (1, {"3": 1})


def test_where_a_quota_has_too_little_left_the_ranks_train_on() -> None:
    story = small()
    story.quotas = [Quota("gpus", {"pods": "3"}, {"pods": "3"})]
    grow(story)
    status = story.status()
    assert (status.state, status.attempt, placement(story).swapping) == (State.RUNNING, 1, None)
    room = placement(story).room
    assert room is not None
    assert room.refused is not None
    assert of_train(story) == WORKERS


@pytest.mark.parametrize("code", [403, 422])
def test_where_the_api_server_keeps_the_size_from_them_all_pods_are_new(code: int) -> None:
    story = small()
    reason = {403: DenialKind.FORBIDDEN, 422: DenialKind.INVALID}[code]
    story.unsized = Denial(reason, code, reason, "no")
    grow(story)
    assert (story.status().attempt, placement(story).swapping, placement(story).gpus) == (2, None, None)
    assert [each.reason for each in story.status().attempts] == ["Grown"]


def test_a_pod_that_ends_meanwhile_ends_the_growth_in_place() -> None:
    story = small()
    grow(story)
    story.remove_pod(WORKERS[1])
    story.settle()
    assert (story.status().attempt, placement(story).swapping, placement(story).gpus) == (2, None, None)


def test_an_added_pod_that_somebody_deletes_is_made_again() -> None:
    story = small()
    grow(story)
    story.remove_pod(ADDED)
    story.pass_time(60)
    story.settle()
    assert (story.status().attempt, ADDED in story.pods()) == (1, True)


def test_its_nodes_are_left_where_all_of_it_lies_nearer_together_elsewhere() -> None:
    story = small(number=7, other=32, racks="bbbaaaa")
    assert sorted(nodes(story)) == ["gpu-1", "gpu-2", "gpu-3"]
    grow(story)
    assert sorted(nodes(story)) == ["gpu-4", "gpu-5", "gpu-6", "gpu-7"]
    all_are_new(story)


def test_its_nodes_are_kept_where_nothing_is_nearer() -> None:
    story = small(number=8, other=40, racks="aaabbbcc")
    before = nodes(story)
    grow(story)
    assert (nodes(story)[:3], story.status().attempt) == (before, 1)


def lose(story: Story, node: str, *kinds: str) -> None:
    for kind in kinds:
        del story.objects[kind, "", node]


@pytest.mark.parametrize(
    "kinds", [("NodeTopology",), ("Node",), ("Node", "NodeTopology")], ids=["its agent", "its Node", "all of it"]
)
def test_a_node_that_is_gone_when_it_is_to_grow_is_not_kept(kinds: tuple[str, ...]) -> None:
    story = small(number=7, other=32)
    gone = nodes(story)[1]
    story.pass_time(5 * MINUTE)
    lose(story, gone, *kinds)
    story.settle()
    assert gone not in nodes(story)
    assert (placement(story).swapping, placement(story).gpus) == (None, None)


def test_a_node_that_is_drained_is_left_by_its_growth() -> None:
    story = small(number=7, other=32)
    drained = nodes(story)[1]
    story.pass_time(5 * MINUTE)
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    story.objects["Node", "", drained]["spec"] = {"unschedulable": True, "taints": [taint]}
    story.settle()
    assert drained not in nodes(story)
    all_are_new(story)


def ends(story: Story, pod: str, code: int = 0) -> None:
    """The trainer of this Pod is over, and the Pod with it."""
    state = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
    phase = "Failed" if code else "Succeeded"
    story.change_pod(pod, phase=phase, containerStatuses=[{"name": "trainer", "state": state}])
    story.settle()


@pytest.mark.parametrize("added", ["none", "waits", "gave up"])
def test_ranks_that_end_well_before_the_new_pods_are_there_end_the_job_well(added: str) -> None:
    story = small()
    grow(story)
    ends(story, WORKERS[1])
    if added != "none":
        story.run_all()
        waits(story, ADDED)
        story.settle()
    if added == "gave up":
        fails_at_barrier(story, ADDED)
        story.settle()
    assert (story.status().attempt, story.status().state) == (1, State.STARTING)
    ends(story, WORKERS[0])
    story.remove_pod(WORKERS[1])
    story.settle()
    ends(story, WORKERS[2])
    status = story.status()
    assert (status.state, status.attempts[-1].message) == (State.SUCCEEDED, "all 3 Pods ended with exit code 0")
    live = [pod for pod in map(story.pod, of_train(story)) if pod["status"]["phase"] == "Pending"]
    assert all(pod["spec"]["activeDeadlineSeconds"] == 1 for pod in live)


def test_a_rank_that_fails_after_another_has_ended_well_has_all_start_again() -> None:
    story = small()
    grow(story)
    ends(story, WORKERS[1])
    ends(story, WORKERS[0], 1)
    assert (story.status().attempt, placement(story).swapping) == (2, None)


def test_after_a_growth_all_ranks_have_to_end_well() -> None:
    story = small()
    grow(story)
    together(story, 1)
    for pod in WORKERS:
        ends(story, pod)
    assert story.status().state is State.RUNNING
    ends(story, ADDED)
    assert story.status().state is State.SUCCEEDED


def test_a_rank_that_fails_of_its_own_while_new_pods_are_made_is_charged_and_judged() -> None:
    """It had all the others, so that nothing but the job ended it."""
    rules = [{"action": "Fail", "exitCodes": [3]}]
    for code, state in ((1, State.STARTING), (3, State.FAILED)):
        story = small(restart={"limit": 2, "rules": rules})
        grow(story)
        ends(story, WORKERS[1], code)
        last = story.status().attempts[-1]
        assert (story.status().state, last.charged) == (state, True)


def test_an_added_pod_that_ends_because_somebody_deletes_it_charges_nothing() -> None:
    """Its container has ended by the signal before anybody looked."""
    story = small()
    grow(story)
    story.run_all()
    story.mark_deleted(ADDED)
    ends(story, ADDED, 143)
    last = story.status().attempts[-1]
    assert (last.reason, last.charged, story.status().state) == ("ChildDeleted", False, State.STARTING)


def test_a_rank_that_fails_of_its_own_is_charged_though_somebody_deletes_an_added_pod() -> None:
    story = small()
    grow(story)
    story.run_all()
    story.mark_deleted(ADDED)
    ends(story, WORKERS[1], 1)
    last = story.status().attempts[-1]
    assert (last.reason, last.charged) == ("PodFailed", True)
