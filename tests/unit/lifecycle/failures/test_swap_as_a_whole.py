"""Gangs whose lost nodes are not replaced one by one: what is well of them stays booked until they are placed again."""

from typing import Any

from closeknit.api.names import IMEX_CHANNELS
from closeknit.api.trainingjob_status import State
from scenarios.manifests import device_class, training_job
from scenarios.stories import ended
from scenarios.story import Story, dra_node
from unit.lifecycle.failures.test_swap import lose, run


def tray(name: str, domain: str) -> list[dict[str, Any]]:
    """A node of an NVLink domain."""
    manifests = dra_node(name)
    for each in manifests:
        if each["kind"] == "Node":
            each["metadata"].setdefault("labels", {})["nvidia.com/gpu.clique"] = domain
        if each["kind"] == "NodeTopology":
            each["spec"]["nvlink"] = {"switched": True, "linksPerGPU": [18] * 8}
    return manifests


def running(trays: dict[str, str], gpus: int = 24, **spec: Any) -> Story:
    """A gang with NVLink between its nodes, which runs on the first of these."""
    manifests = [each for name, domain in trays.items() for each in tray(name, domain)]
    job = training_job(spec={"gpus": gpus, "topology": {"gpusPerNode": 8}, **spec})
    story = Story(*manifests, device_class(IMEX_CHANNELS), job)
    run(story)
    assert story.status().state is State.RUNNING
    assert "create ComputeDomain train-a1" in story.written
    return story


def nodes(story: Story) -> set[str]:
    placement = story.status().placement
    return set() if placement is None else {each.name for each in placement.nodes}


def test_a_gang_with_nvlink_between_nodes_goes_on_in_its_domain() -> None:
    """The other domain has room for all of it, and comes first by name."""
    ours = {f"b-{number}": "c0ffee.2" for number in range(1, 4)}
    story = running(ours)
    others = {f"a-{number}": "c0ffee.1" for number in range(1, 4)}
    for name, domain in {**others, "b-4": "c0ffee.2"}.items():
        for each in tray(name, domain):
            story.add(each)
    lose(story, "b-2")
    run(story)
    assert nodes(story) == {"b-1", "b-3", "b-4"}
    assert ended(story) == [(1, "ChildDeleted", False)]
    assert story.status().restarts == 1
    assert "create ComputeDomain train-a2" in story.written


def test_its_nodes_are_nobody_elses_while_it_waits() -> None:
    story = running({f"b-{number}": "c0ffee.2" for number in range(1, 4)})
    story.add(training_job("next", spec={"gpus": 16, "topology": {"gpusPerNode": 8}}))
    lose(story, "b-2")
    run(story)
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == "NodesLost"
    assert (
        "it lost b-2 and holds 2 nodes of 3; it is placed as a whole, for NVLink may join its nodes" in pending.message
    )
    assert [name for name in story.pods() if name.startswith("next")] == []
    for each in tray("b-4", "c0ffee.2"):
        story.add(each)
    run(story)
    assert nodes(story) == {"b-1", "b-3", "b-4"}
    assert story.status().state is State.RUNNING


def test_after_ten_minutes_it_gives_them_back() -> None:
    story = running({f"b-{number}": "c0ffee.2" for number in range(1, 4)})
    story.add(training_job("next", spec={"gpus": 16, "topology": {"gpusPerNode": 8}}))
    lose(story, "b-2")
    run(story)
    story.pass_time(601)
    run(story)
    assert nodes(story) == set()
    assert story.status("next").state is State.RUNNING


def test_what_it_does_not_need_elsewhere_it_gives_back_first() -> None:
    story = running({f"b-{number}": "c0ffee.2" for number in range(1, 4)})
    for number in range(1, 4):
        for each in tray(f"a-{number}", "c0ffee.1"):
            story.add(each)
    lose(story, "b-2")
    run(story)
    assert nodes(story) == {"a-1", "a-2", "a-3"}
    assert story.status().state is State.RUNNING
