"""What other schedulers' users report of preemption that knows topology, as stories here.

Kueue 10815 frees GPUs in pieces all over the cluster and then has no domain for the job; 10497 ends too few; 14723 (and
its pull request 15036) chooses another domain while it waits, and ends those of the first in vain. KAI 1591 leaves
domains out that are full before it looks for victims. Volcano at Huawei's CCE has no preemption with topology at all.
"""

from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from scenarios.manifests import cluster_topology, priority_class, training_job
from scenarios.story import Story, dra_node
from unit.scheduling.preemption.test_preempted_jobs import awaited, begin, ends, finish

RACK = {"fabric": {"required": "rack"}}


def racks(*sizes: int) -> Story:
    """Racks of so many nodes each, of eight GPUs that claims bind."""
    story = Story(cluster_topology("rack"), priority_class("high", 100))
    number = 0
    for rack, size in enumerate(sizes, start=1):
        for _ in range(size):
            number += 1
            for manifest in dra_node(f"gpu-{number}"):
                if manifest["kind"] == "Node":
                    manifest["metadata"]["labels"]["net.example/rack"] = f"r{rack}"
                story.add(manifest)
    return story


def run(story: Story, name: str, gpus: int, *nodes: str, **spec: Any) -> None:
    """A job of low priority that runs on these nodes."""
    values = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}]}
    ]}}}  # fmt: skip
    template = {"spec": {"containers": [{"name": "trainer", "image": "train:1"}], "affinity": values}}
    story.add(training_job(name, spec={"gpus": gpus, "template": template, **spec}))
    story.settle()
    begin(story)
    assert story.status(name).state is State.RUNNING, name


def urge(story: Story, gpus: int, **topology: Any) -> list[str]:
    """An urgent job comes; who makes room for it."""
    story.add(training_job("urgent", spec={"gpus": gpus, "priorityClassName": "high", "topology": topology}))
    story.settle()
    return sorted(awaited(story))


def start(story: Story) -> list[str]:
    """The others go, and the urgent job runs; its nodes."""
    finish(story)
    begin(story)
    assert story.status("urgent").state is State.RUNNING
    placement = story.status("urgent").placement
    assert placement is not None
    return [each.name for each in placement.nodes]


def ended(story: Story) -> list[str]:
    """Who made room."""
    names = (key.name for key in story.cluster.jobs)
    return sorted(name for name in names if [reason for _, reason, _ in ends(story, name)] == ["Preempted"])


def test_kueue_10815_what_comes_free_is_one_domain() -> None:
    """The youngest jobs are spread over both racks, and would free GPUs enough: in pieces."""
    story = racks(2, 2)
    run(story, "old-1", 8, "gpu-1")
    run(story, "old-2", 8, "gpu-3")
    story.pass_time(600)
    run(story, "young-1", 8, "gpu-2")
    story.pass_time(60)
    run(story, "young-2", 8, "gpu-4")
    story.pass_time(60)
    assert urge(story, 16, **RACK) == ["old-2", "young-2"]
    assert start(story) == ["gpu-3", "gpu-4"]
    assert ended(story) == ["old-2", "young-2"]


def test_kueue_10497_as_many_end_as_it_takes() -> None:
    """Sixteen GPUs of four young jobs are halves of four nodes, and the gang asks for two whole ones."""
    story = racks(4)
    for number in range(1, 5):
        run(story, f"old-{number}", 4, f"gpu-{number}")
    story.pass_time(600)
    for number in range(1, 5):
        run(story, f"young-{number}", 4, f"gpu-{number}")
    story.pass_time(60)
    assert urge(story, 16, gpusPerNode=8) == ["old-1", "old-2", "young-1", "young-2"]
    assert start(story) == ["gpu-1", "gpu-2"]


def test_kueue_14723_the_domain_stays_while_it_waits() -> None:
    """Other GPUs come free meanwhile, not enough of them: it keeps its rack, and nobody else goes."""
    story = racks(2, 2)
    run(story, "one", 16, "gpu-1", "gpu-2")
    run(story, "two", 8, "gpu-3")
    run(story, "three", 8, "gpu-4")
    story.pass_time(60)
    victims = urge(story, 16, **RACK)
    other = [name for name in ("two", "three") if name not in victims]
    if other:  # rack 2 stays as it is, and one of its nodes comes free
        story.change_pod(f"{other[0]}-a1-worker-00000", phase="Succeeded")
        story.settle()
    assert sorted(awaited(story)) == victims
    assert len(start(story)) == 2
    assert ended(story) == sorted({*victims})


def test_kai_1591_a_full_domain_is_no_reason_to_leave_it_out() -> None:
    story = racks(1, 1)
    run(story, "one", 8, "gpu-1")
    story.pass_time(60)
    run(story, "two", 8, "gpu-2")
    story.pass_time(60)
    assert urge(story, 8, **RACK) == ["two"]
    assert start(story) == ["gpu-2"]


@pytest.mark.parametrize("level", ["rack", "host"])
def test_volcano_on_cce_preemption_and_a_required_level_go_together(level: str) -> None:
    story = racks(1, 1)
    for number in range(1, 5):
        run(story, f"low-{number}", 4, f"gpu-{(number + 1) // 2}")
        story.pass_time(60)
    assert urge(story, 8, fabric={"required": level}) == ["low-3", "low-4"]
    assert start(story) == ["gpu-2"]
