"""What a tenant reads in his jobs: no name out of another namespace, and no text that drives his terminal."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from closeknit.api.reasons import PendingReason
from closeknit.lifecycle.writes.resource_quotas import Quota
from scenarios.manifests import node, node_topology, pod, resource_claim, training_job, worker
from scenarios.stories import disruption, two_plugin_nodes, unschedulable
from scenarios.story import Story, dra_node, plugin_node

HOSTILE = "a\nPlaced \x1b[2J\x9b31m\u202eb\u2028\u200b\x00z"
SHOWN = "a\\nPlaced \\x1b[2J\\x9b31m\\u202eb\\u2028\\u200b\\x00z"


def texts(value: object) -> Iterator[str]:
    """Every text in plain dicts and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in (*value, *value.values()):
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)


def told(story: Story) -> list[str]:
    """All that a tenant can read of his job."""
    notes = [text for notice in story.notices for text in (notice.name, notice.note)]
    return [*texts(story.status().wire()), *notes]


def waiting(*manifests: Any, **spec: Any) -> Story:
    return Story(*manifests, training_job(spec={"gpus": 64, **spec}))


def of_pods(**status: Any) -> Story:
    """A gang of which one Pod is told so of."""
    story = two_plugin_nodes()
    story.settle()
    story.change_pod("train-a1-worker-00000", **status)
    return story


def of_containers(**state: Any) -> Story:
    statuses = [{"name": HOSTILE, "state": {"terminated": {"exitCode": 3, **state}}}]
    return of_pods(node="gpu-1", phase="Failed", containerStatuses=statuses)


def forbidden(words: str) -> Story:
    story = two_plugin_nodes()
    story.forbidden["train-a1-worker-00000"] = words
    return story


def with_quota() -> Story:
    story = two_plugin_nodes()
    story.quotas = [Quota(HOSTILE, {"pods": "1"}, {"pods": "0"}, ())]
    return story


def taken() -> Story:
    story = two_plugin_nodes()
    somebodys = pod("train-a1-worker-00000", namespace="team-b", requests={})
    somebodys["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": HOSTILE, "name": HOSTILE, "uid": HOSTILE}]
    story.add(somebodys)
    return story


def not_ready() -> dict[str, Any]:
    made = node("gpu-1", ready="False")
    made["status"]["conditions"][-1]["reason"] = HOSTILE
    return made


def another_product() -> dict[str, Any]:
    made = node_topology("gpu-1")
    for gpu in made["spec"]["gpus"]:
        gpu["product"] = HOSTILE
    return made


AGENT = {
    "type": "Ready",
    "status": "False",
    "reason": HOSTILE,
    "message": HOSTILE,
    "lastTransitionTime": "2026-11-21T10:00:00Z",
}
STORIES: dict[str, Callable[[], Story]] = {
    "a taint": lambda: waiting(node("gpu-1", taints=[{"key": HOSTILE, "effect": "NoSchedule"}]), node_topology()),
    "a Node's condition": lambda: waiting(not_ready(), node_topology()),
    "an agent's condition": lambda: waiting(node(), node_topology(conditions=[AGENT])),
    "a product": lambda: waiting(node(), another_product(), gpu={"products": ["NVIDIA-H100"]}),
    "a product that is asked for": lambda: waiting(*plugin_node("gpu-1"), gpu={"products": [HOSTILE]}),
    "a level that is asked for": lambda: waiting(*plugin_node("gpu-1"), topology={"fabric": {"required": HOSTILE}}),
    "a resource that is asked for": lambda: waiting(
        *plugin_node("gpu-1"),
        gpus=8,
        template={"spec": {"containers": [{"name": "trainer", "resources": {"requests": {f"x/{HOSTILE}": "1"}}}]}},
    ),
    "the name of a container": lambda: waiting(
        *plugin_node("gpu-1"), template={"spec": {"containers": [{"name": HOSTILE}, {"name": HOSTILE}]}}
    ),
    "the scheduler": lambda: of_pods(conditions=[unschedulable(HOSTILE, "2026-11-21T09:00:00Z")]),
    "a kubelet that refuses": lambda: of_pods(node="gpu-1", phase="Failed", reason=HOSTILE, message=HOSTILE),
    "a disruption": lambda: of_pods(node="gpu-1", phase="Failed", conditions=[disruption("X", HOSTILE)]),
    "the last words of a container": lambda: of_containers(message=HOSTILE, reason=HOSTILE),
    "a policy": lambda: forbidden(HOSTILE),
    "a quota": with_quota,
    "somebody else's owner": taken,
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_words_of_others_are_printable_wherever_a_job_tells_them(story: Callable[[], Story]) -> None:
    lived = story()
    lived.settle()
    found = told(lived)
    assert any(SHOWN in text for text in found), found
    assert [text for text in found if not text.isprintable()] == []


@pytest.mark.parametrize("status", [True, False], ids=["a failure", "a refusal"])
def test_a_flood_of_words_ends_where_the_schema_does(status: bool) -> None:
    story = of_containers(message="\x1b" * 5000) if status else forbidden("\x1b" * 5000)
    story.settle()
    assert max(map(len, told(story))) <= 4096
    assert max(len(notice.note.encode()) for notice in story.notices) <= 1000


def test_what_one_agent_says_at_length_leaves_room_for_the_other_nodes() -> None:
    story = waiting(
        node("gpu-1"),
        node_topology("gpu-1", conditions=[AGENT | {"reason": "R" * 1024, "message": "\x1b[2J" * 8000}]),
        node("gpu-2", ready="False"),
        node_topology("gpu-2"),
    )
    story.settle()
    assert any("gpu-2 (NotReady" in text for text in told(story))
    assert max(map(len, told(story))) <= 1000


OTHERS = "secret-team"


def held() -> list[Any]:
    """Nodes that jobs, Pods and claims of another namespace hold, known by name and not."""
    by_booking = training_job(
        f"{OTHERS}-job",
        namespace=OTHERS,
        attempt=1,
        placement={
            "nodeCount": 1,
            "nodes": [
                {"name": "gpu-1", "gpus": [0, 1], "ranks": "0-1", "binding": "WholeNode", "topologyGeneration": 4}
            ],
        },
    )
    return [
        *plugin_node("gpu-1"),
        *plugin_node("gpu-2"),
        *dra_node("gpu-3"),
        *plugin_node("gpu-4"),
        by_booking,
        worker(f"{OTHERS}-lost", namespace=OTHERS, node="gpu-1", requests={"nvidia.com/gpu": "2"}),
        *(
            pod(f"{OTHERS}-{number}", namespace=OTHERS, node="gpu-2", requests={"nvidia.com/gpu": "4"})
            for number in (1, 2)
        ),
        pod(f"{OTHERS}-blind", namespace=OTHERS, node="gpu-4", requests={"nvidia.com/gpu": "1"}),
        resource_claim(f"{OTHERS}-claim", ("gpu-3", 0), ("gpu-3", 1), namespace=OTHERS),
    ]


ASKED: dict[PendingReason, dict[str, Any]] = {
    PendingReason.INSUFFICIENT_GPUS: {"gpus": 64},
    PendingReason.NO_NVLINK_ISLAND: {"gpus": 2, "parallelism": {"tensor": 2}, "topology": {"nvlink": "Required"}},
    PendingReason.INSUFFICIENT_RESOURCES: {
        "gpus": 2,
        "template": {"spec": {"containers": [{"name": "trainer", "resources": {"requests": {"cpu": "1k"}}}]}},
    },
}


@pytest.mark.parametrize(("reason", "spec"), ASKED.items(), ids=ASKED.keys())
def test_no_job_is_told_the_names_of_another_namespace(reason: PendingReason, spec: dict[str, Any]) -> None:
    story = Story(*held(), training_job(spec=spec))
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == reason
    assert "held by" in pending.message
    assert [text for text in told(story) if OTHERS in text] == []
