"""Placeholder Pods: in which shape they ask for nodes, that they hold nothing, and when they go."""

from typing import Any

import pytest

from closeknit.api.names import JOB_LABEL, PLACEHOLDER_LABEL, PLACEHOLDER_PODS, PROVISIONING_CLASS_ANNOTATION
from closeknit.cluster.capacity.placeholder import Placeholder, PlaceholderName, placeholder_name
from closeknit.cluster.objects.silence import Quiet
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.lifecycle.capacity import placeholder_news
from closeknit.lifecycle.capacity.capacity_news import MOST_REQUESTS, MOST_SEARCHES, CapacityNews, CapacityPolicy
from closeknit.lifecycle.capacity.placeholder_news import MOST_PLACEHOLDERS
from scenarios.manifests import Manifest, training_job
from scenarios.story import Story, plugin_node

POLICY = CapacityPolicy(PLACEHOLDER_PODS, placeholder_image="registry.example/operator:1")
STANDS = "placeholder Pod"


def waiting(*manifests: Manifest, nodes: int = 1, **spec: Any) -> Story:
    """A job that has waited for a minute."""
    there = [each for number in range(nodes) for each in plugin_node(f"gpu-{number}")]
    story = Story(*there, *manifests, training_job(spec={"gpus": 16, **spec}))
    story.settle()
    story.pass_time(60)
    return story


def asked(**spec: Any) -> Story:
    """The same, with its placeholders."""
    story = waiting(**spec)
    story.ask(POLICY)
    return story


def placeholders(story: Story) -> list[str]:
    return [name for name in story.pods() if "-placeholder-" in name]


def message(story: Story) -> str:
    story.pass_time(61)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    return pending.message


def come(story: Story, *names: str) -> None:
    """Nodes come, and are measured."""
    for name in names:
        for each in plugin_node(name):
            story.add(each)


def test_they_have_the_gangs_shape_and_nothing_of_its_template_but_where_it_may_run() -> None:
    tolerated = {"key": "pool", "operator": "Exists"}
    container = {"name": "trainer", "image": "i", "resources": {"requests": {"cpu": "1500m"}}, "env": [{"name": "S"}]}
    spec = {"containers": [container], "tolerations": [tolerated], "serviceAccountName": "mighty"}
    story = asked(template={"spec": spec})
    first, second = (story.pod(name) for name in placeholders(story))
    assert [placeholder_name(each["metadata"]["name"]) for each in (first, second)] == [
        PlaceholderName("train", str(first["metadata"]["name"]).split("-")[2], index, 2) for index in (0, 1)
    ]
    made, metadata = first["spec"], first["metadata"]
    (only,) = made["containers"]
    assert (only["resources"]["requests"]["nvidia.com/gpu"], only["resources"]["requests"]["cpu"]) == ("8", "1500m")
    assert only["image"] == "registry.example/operator:1"
    assert "env" not in only
    assert "serviceAccountName" not in made
    assert made["automountServiceAccountToken"] is False
    assert tolerated in made["tolerations"]
    assert made["priorityClassName"] == "closeknit-placeholder"
    assert metadata["labels"] == {PLACEHOLDER_LABEL: "train"}
    (owner,) = metadata["ownerReferences"]
    assert owner["uid"] == story.objects["TrainingJob", "team-b", "train"]["metadata"]["uid"]
    (apart,) = made["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"] == {"matchLabels": metadata["labels"]}


def test_a_job_or_its_administrator_asks_for_them_and_once() -> None:
    story = waiting()
    assert story.ask(CapacityPolicy(placeholder_image="i")) == CapacityNews()
    assert story.ask(CapacityPolicy(PLACEHOLDER_PODS)) == CapacityNews()  # nothing to make them of
    annotations = {PROVISIONING_CLASS_ANNOTATION: PLACEHOLDER_PODS}
    story.objects["TrainingJob", "team-b", "train"]["metadata"]["annotations"] = annotations
    story.ask(CapacityPolicy("Never", placeholder_image="i"))
    assert len(placeholders(story)) == 2
    assert story.ask(CapacityPolicy("Never", placeholder_image="i")) == CapacityNews()


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"gpu": {"products": ["NVIDIA-B300"]}}, id="another product"),
        pytest.param({"topology": {"fabric": {"required": "rack"}}}, id="a level that the cluster does not have"),
    ],
)
def test_nothing_is_asked_for_that_placement_would_refuse(spec: dict[str, Any]) -> None:
    assert placeholders(asked(**spec)) == []


def test_what_is_asked_for_and_until_when_is_told() -> None:
    story = asked()
    told = message(story)
    assert (
        "it asked for nodes at 2026-11-21T10:01:00Z, by 2 placeholder Pods of 8 GPUs each until 2026-11-21T10:31:00Z: "
        "0 of them are on a node, and each node counts once its agent has measured it"
    ) in told


def test_one_on_a_node_holds_nothing_there_and_is_none_of_the_jobs_ranks() -> None:
    """Not of another job either, which is placed as if it were not there."""
    story = asked()
    come(story, "gpu-1")
    for name, node in zip(placeholders(story), ("gpu-0", "gpu-1"), strict=True):
        story.change_pod(name, node=node, phase="Running")
    cluster = story.cluster
    assert [cluster.nodes[name].free for name in ("gpu-0", "gpu-1")] == [tuple(range(8))] * 2
    assert not cluster.pods
    story.settle()
    placed = story.status().placement
    assert placed is not None


def test_the_gangs_pods_are_made_once_the_placeholders_on_its_nodes_are_gone() -> None:
    """A device plugin gives a Pod the GPUs that no other Pod has: others than it was foreseen to."""
    story = asked()
    come(story, "gpu-1")
    for name, node in zip(placeholders(story), ("gpu-0", "gpu-1"), strict=True):
        story.change_pod(name, node=node, phase="Running")
    story.settle()
    assert story.status().placement is not None
    assert story.pods() == placeholders(story)
    story.ask(POLICY)
    assert story.pods() == []
    story.settle()
    assert story.pods() == ["train-a1-worker-00000", "train-a1-worker-00001"]


def test_another_jobs_placeholders_go_from_nodes_on_which_a_gang_is_booked() -> None:
    story = asked()
    story.add(training_job("small", spec={"gpus": 4}))
    first, second = placeholders(story)
    story.change_pod(first, node="gpu-0", phase="Running")
    story.settle()
    assert story.status("small").placement is not None
    assert [name for name in story.pods() if name.startswith("small")] == []
    story.ask(POLICY)
    assert placeholders(story) == [second]
    story.settle()
    assert [name for name in story.pods() if name.startswith("small")] == ["small-a1-worker-00000"]
    story.change_pod("small-a1-worker-00000", node="gpu-0", phase="Running")
    story.ask(POLICY)  # and it is made again, for the other still waits
    assert placeholders(story) == [first, second]


@pytest.mark.parametrize("end", ["placed", "suspended", "changed", "another class", "no image", "gone"])
def test_they_go_once_the_job_needs_them_no_more(end: str) -> None:
    story = asked()
    before = placeholders(story)
    assert len(before) == 2
    policy = POLICY
    if end == "placed":
        come(story, "gpu-1")
    elif end == "suspended":
        story.edit_job(suspend=True)
    elif end == "changed":
        story.edit_job(gpus=24)
    elif end == "another class":
        policy = CapacityPolicy("Never", placeholder_image="i")
    elif end == "no image":
        policy = CapacityPolicy(PLACEHOLDER_PODS)
    else:
        del story.objects["TrainingJob", "team-b", "train"]
    story.settle()
    story.ask(policy)
    assert set(placeholders(story)).isdisjoint(before)


def test_they_go_after_half_an_hour_and_come_again_ten_minutes_later() -> None:
    story = asked()
    story.pass_time(30 * 60)
    story.ask(POLICY)
    assert placeholders(story) == []
    assert story.ask(POLICY) == CapacityNews()
    told = message(story)
    assert (
        "no nodes are asked for: 2 placeholder Pods stood for it for 30 minutes, 0 of them on a node, and it does not "
        "fit; it asks again at 2026-11-21T10:41:00Z"
    ) in told
    story.pass_time(600)
    story.ask(POLICY)
    story.ask(POLICY)
    assert len(placeholders(story)) == 2


def test_a_quota_that_refuses_them_is_told_and_none_stays() -> None:
    """The second alone is refused: the first one would bring a node for nothing."""
    story = waiting()
    names = [str(PlaceholderName("train", digest_of(story), index, 2)) for index in (0, 1)]
    story.forbidden[f"{names[1]}"] = f'pods "{names[1]}" is forbidden: exceeded quota: gpus, requested: 8, limited: 8'
    story.ask(POLICY)
    assert placeholders(story) == names[:1]
    story.ask(POLICY)
    assert placeholders(story) == []
    told = message(story)
    assert "no nodes are asked for: the API server refuses a placeholder Pod for it: pods" in told
    assert "exceeded quota: gpus, requested: 8, limited: 8; it asks again at 2026-11-21T10:11:00Z" in told
    assert story.ask(POLICY) == CapacityNews()
    story.edit_job(gpus=8, suspend=True)
    story.edit_job(gpus=16, suspend=False)
    story.settle()
    story.forbidden.clear()
    story.ask(POLICY)  # another generation is asked for at once
    assert len(placeholders(story)) == 2


def digest_of(story: Story) -> str:
    """As another world makes it of the same job."""
    other = waiting()
    uid = story.objects["TrainingJob", "team-b", "train"]["metadata"]["uid"]
    other.objects["TrainingJob", "team-b", "train"]["metadata"]["uid"] = uid
    other.ask(POLICY)
    parts = placeholder_name(placeholders(other)[0])
    assert parts is not None
    return parts.digest


def test_one_that_another_pod_has_displaced_is_made_again() -> None:
    story = asked()
    first, second = placeholders(story)
    story.remove_pod(first)
    story.ask(POLICY)
    assert placeholders(story) == [first, second]


def test_one_that_has_ended_makes_room_for_its_name() -> None:
    story = asked()
    first, second = placeholders(story)
    story.change_pod(first, node="gpu-0", phase="Failed", reason="Evicted")
    story.ask(POLICY)
    assert placeholders(story) == [second]
    story.ask(POLICY)
    assert placeholders(story) == [first, second]


def test_few_jobs_have_some_at_a_time_and_none_has_too_many() -> None:
    jobs = [training_job(f"job-{number}", spec={"gpus": 16}) for number in range(MOST_REQUESTS + 3)]
    story = Story(*plugin_node("gpu-0"), *jobs)
    story.settle()
    story.pass_time(60)
    for _ in range(3):
        story.ask(POLICY)
    assert {name.rpartition("-placeholder-")[0] for name in placeholders(story)} == {
        f"job-{number}" for number in range(MOST_REQUESTS)
    }
    large = asked(gpus=8 * (MOST_PLACEHOLDERS + 1))
    assert placeholders(large) == []
    assert f"its gang needs {MOST_PLACEHOLDERS + 1} nodes" in message(large)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"priority": 0}, id="a priority that nobody displaces"),
        pytest.param({"priority": None}, id="no priority"),
        pytest.param({"owner": "ReplicaSet"}, id="another owner"),
        pytest.param({"name": "mine"}, id="another name"),
        pytest.param({"labels": {PLACEHOLDER_LABEL: "other"}}, id="another job in its label"),
        pytest.param({"labels": {PLACEHOLDER_LABEL: "train", JOB_LABEL: "train"}}, id="a child's label"),
    ],
)
def test_a_pod_that_only_looks_like_one_holds_what_it_asks_for(change: dict[str, Any]) -> None:
    def manifest(**change: Any) -> Manifest:
        owner = {"kind": change.get("owner", "TrainingJob"), "name": "train", "uid": "u", "controller": True}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": change.get("name", "train-placeholder-0123abcd-0-of-1"),
                "namespace": "team-b",
                "labels": change.get("labels", {PLACEHOLDER_LABEL: "train"}),
                "ownerReferences": [{"apiVersion": "closeknit.dev/v1alpha1", **owner}],
            },
            "spec": {
                "nodeName": "gpu-0",
                "priority": change.get("priority", -10),
                "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 8}}}],
            },
            "status": {"phase": "Running"},
        }

    assert isinstance(from_document(manifest()), Placeholder)
    assert isinstance(from_document(manifest(**change)), Pod)


def test_jobs_that_no_node_would_help_keep_nobody_from_asking() -> None:
    hopeless = [
        training_job(f"aa-{number}", spec={"gpus": 16, "gpu": {"products": ["NVIDIA-B300"]}})
        for number in range(3 * MOST_REQUESTS)
    ]
    story = waiting(*hopeless)
    story.ask(POLICY)
    assert len(placeholders(story)) == 2


def beside_a_spare(gpus: int = 8) -> Story:
    """The only node that looks free, gpu-2, is the spare of a job that runs; and a job that waits has asked."""
    there = [each for number in (1, 2) for each in plugin_node(f"gpu-{number}")]
    story = Story(*there, training_job("spared", spec={"gpus": 8, "spares": 1}))
    story.settle()
    story.run_all()
    story.add(training_job(spec={"gpus": gpus}))
    story.settle()
    story.pass_time(60)
    story.ask(POLICY)
    return story


def bind(story: Story, name: str, node: str) -> None:
    """As the scheduler does."""
    story.change_pod(name, node=node, phase="Running")


def test_one_on_a_node_that_is_held_without_a_pod_stays_there_and_another_asks_in_its_place() -> None:
    """The scheduler would bind it there again and again, and no node would ever be asked for."""
    story = beside_a_spare()
    (first,) = placeholders(story)
    bind(story, first, "gpu-2")
    for _ in range(3):
        story.ask(POLICY)
    kept, more = placeholders(story)
    assert kept == first
    assert "nodeName" not in story.pod(more)["spec"]
    assert "by 2 placeholder Pods of 8 GPUs each" in message(story)
    assert "1 of them in place of others on nodes that are held without Pods: 1 of them is on a node" in message(story)

    come(story, "gpu-3")
    bind(story, more, "gpu-3")
    assert story.ask(POLICY)._replace(notes=()) == CapacityNews()
    story.settle()
    assert story.status().placement is not None
    story.ask(POLICY)
    assert placeholders(story) == []


def test_it_goes_once_the_pods_of_the_node_are_due() -> None:
    story = beside_a_spare()
    (first,) = placeholders(story)
    bind(story, first, "gpu-2")
    story.ask(POLICY)
    (_, more) = placeholders(story)
    story.lose_node("gpu-1")
    story.silence("gpu-1", Quiet.LONG)
    story.settle()
    placed = story.status("spared").placement
    assert placed is not None
    assert [each.name for each in placed.nodes] == ["gpu-2"]
    story.ask(POLICY)
    assert placeholders(story) == [more]


def test_the_one_more_goes_once_the_node_is_free() -> None:
    story = beside_a_spare(gpus=24)
    before = placeholders(story)
    bind(story, before[0], "gpu-2")
    story.ask(POLICY)
    assert len(placeholders(story)) == len(before) + 1
    del story.objects["TrainingJob", "team-b", "spared"]
    story.remove_pod("spared-a1-worker-00000")
    story.settle()
    story.ask(POLICY)
    assert placeholders(story) == before


def test_no_more_than_so_many_are_made_in_place_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placeholder_news, "MOST_STAND_INS", 1)
    there = [each for number in (1, 2, 3) for each in plugin_node(f"gpu-{number}")]
    story = Story(*there, training_job("spared", spec={"gpus": 8, "spares": 2}))
    story.settle()
    story.run_all()
    story.add(training_job(spec={"gpus": 8}))
    story.settle()
    story.pass_time(60)
    story.ask(POLICY)
    for name in ("gpu-2", "gpu-3"):
        for each in placeholders(story):
            if "nodeName" not in story.pod(each)["spec"]:
                bind(story, each, name)
        story.ask(POLICY)
    assert len(placeholders(story)) == 2


def test_their_half_hour_counts_from_the_first_whichever_are_there() -> None:
    story = beside_a_spare()
    for _ in range(3):
        story.pass_time(9 * 60)
        (name,) = placeholders(story)
        story.remove_pod(name)  # another Pod has displaced it
        story.ask(POLICY)
    assert len(placeholders(story)) == 1
    assert "it asked for nodes at 2026-11-21T10:01:00Z" in message(story)
    (name,) = placeholders(story)
    story.pass_time(3 * 60)
    story.ask(POLICY)
    assert placeholders(story) == []
    assert "1 placeholder Pod stood for it for 30 minutes" in message(story)


def test_their_half_hour_is_over_though_none_is_there() -> None:
    story = asked()
    story.pass_time(30 * 60)
    for name in placeholders(story):
        story.remove_pod(name)
    story.ask(POLICY)
    assert placeholders(story) == []
    assert "placeholder Pods stood for it for 30 minutes and it does not fit" in message(story)


def test_their_half_hour_goes_on_with_another_operator() -> None:
    story = asked()
    story.capacity_notes.clear()
    story.pass_time(60)
    first, second = placeholders(story)
    story.ask(POLICY)
    for name in (first, second):
        story.remove_pod(name)
    story.ask(POLICY)
    assert placeholders(story) == [first, second]
    assert "it asked for nodes at 2026-11-21T10:01:00Z" in message(story)


def test_a_name_that_somebody_elses_pod_has_is_told_and_not_asked_about_at_every_look() -> None:
    story = waiting()
    name = str(PlaceholderName("train", digest_of(story), 0, 2))
    story.taken.add(name)
    story.ask(POLICY)
    story.ask(POLICY)
    assert placeholders(story) == []
    words = (
        f"no nodes are asked for: Pod {name}, which somebody else has made, has the name of a placeholder Pod for it"
    )
    assert words in message(story)
    assert story.ask(POLICY) == CapacityNews()


def test_however_many_jobs_no_node_would_help_they_hold_up_nobody() -> None:
    hopeless = [
        training_job(f"aa-{number:03}", spec={"gpus": 16, "gpu": {"products": ["NVIDIA-B300"]}})
        for number in range(3 * MOST_SEARCHES)
    ]
    story = waiting(*hopeless)
    for _ in range(4):
        assert not placeholders(story)
        story.ask(POLICY)
    assert len(placeholders(story)) == 2
    for each in hopeless[:2]:
        story.edit_job(each["metadata"]["name"], gpu={})
    story.settle()
    story.pass_time(60)
    for _ in range(4):
        story.ask(POLICY)
    assert {name.rpartition("-placeholder-")[0] for name in placeholders(story)} == {"train", "aa-000", "aa-001"}
