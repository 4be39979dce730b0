"""GPUs that agents call unhealthy, as DeviceTaintRules for others: which there are, and when one is taken back."""

from typing import Any

import pytest

from closeknit.lifecycle.device_taints import DeviceTaints, taint_news
from scenarios.manifests import training_job
from scenarios.stories import booked_nodes
from scenarios.story import Story, dra_node, plugin_node

ON = DeviceTaints.NO_SCHEDULE


def ill(story: Story, *gpus: int, state: str = "Unhealthy", why: str = "XID79", node: str = "gpu-1") -> None:
    told = [{"index": gpu, "state": state, "reasons": [why] if why else []} for gpu in gpus]
    story.objects[("NodeTopology", "", node)]["status"]["gpus"] = told


def site(*gpus: int, **told: str) -> Story:
    story = Story(*dra_node("gpu-1"), *plugin_node("gpu-2"))
    ill(story, *gpus, **told)
    return story


def specs(story: Story, taints: DeviceTaints = ON) -> list[dict[str, Any]]:
    return [rule["spec"] for rule in taint_news(story.cluster, taints).missing]


def write(story: Story, taints: DeviceTaints = ON) -> int:
    """What is to be written is written; how much that was."""
    news = taint_news(story.cluster, taints)
    for rule in news.missing:
        story.add({"apiVersion": "resource.k8s.io/v1", **rule})
    for gone in news.gone:
        assert story.objects[("DeviceTaintRule", "", gone.name)]["metadata"]["uid"] == gone.uid
        del story.objects[("DeviceTaintRule", "", gone.name)]
    assert not any(taint_news(story.cluster, taints)), "written once"
    return len(news.missing) + len(news.gone)


@pytest.mark.parametrize(("taints", "effect"), [(DeviceTaints.DRY_RUN, "None"), (ON, "NoSchedule")])
def test_each_unhealthy_gpu_has_a_rule_of_its_own(taints: DeviceTaints, effect: str) -> None:
    device = {"driver": "gpu.nvidia.com", "pool": "gpu-1", "device": "gpu-3"}
    taint = {"key": "closeknit.dev/unhealthy", "value": "XID79", "effect": effect}
    assert specs(site(3), taints) == [{"deviceSelector": device, "taint": taint}]


def test_nothing_is_told_unless_it_is_wanted() -> None:
    assert not any(taint_news(site(3).cluster, DeviceTaints.NEVER))


@pytest.mark.parametrize(
    "told",
    [{"state": "Degraded"}, {"node": "gpu-2"}],
    ids=["only slower", "of a device plugin"],
)
def test_other_gpus_have_none(told: dict[str, str]) -> None:
    assert specs(site(3, **told)) == []


@pytest.mark.parametrize("why", ["", "no label: at all", "x" * 64])
def test_a_reason_that_is_no_value_of_a_taint_is_left_out(why: str) -> None:
    (spec,) = specs(site(3, why=why))
    assert "value" not in spec["taint"]


def test_it_is_taken_back_when_the_gpu_is_well_and_its_own_word_keeps_nothing_ill() -> None:
    story = site(0, 3)
    assert write(story) == 2
    ill(story, 3)
    assert write(story) == 1
    story.add(training_job(spec={"gpus": 7, "gpu": {"binding": "DRA"}}))
    story.settle()
    assert booked_nodes(story)[0].gpus == [0, 1, 2, 4, 5, 6, 7]
    ill(story)
    assert write(story) == 1
    assert story.names("DeviceTaintRule") == []


@pytest.mark.parametrize("taints", [DeviceTaints.DRY_RUN, ON])
def test_a_gpu_that_is_well_again_is_given_to_nobody_before_its_taint_is_taken_back(taints: DeviceTaints) -> None:
    """kube-scheduler heeds the rule: the Pod could not be scheduled, and its job would avoid the GPU for that."""
    story = site(3)
    write(story, taints)
    ill(story)
    story.add(training_job(spec={"gpus": 8, "gpu": {"binding": "DRA"}}))
    story.settle()
    assert bool(story.pods()) is (taints is DeviceTaints.DRY_RUN)
    assert write(story, taints) == 1
    story.settle()
    assert booked_nodes(story)[0].gpus == [*range(8)]


def test_a_dry_run_becomes_a_taint_by_another_rule() -> None:
    story = site(3)
    write(story, DeviceTaints.DRY_RUN)
    assert write(story, ON) == 2
    assert len(story.names("DeviceTaintRule")) == 1


def test_rules_of_others_stay() -> None:
    story = site()
    selector = {"driver": "gpu.nvidia.com", "pool": "gpu-1", "device": "gpu-3"}
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    story.add(
        {
            "apiVersion": "resource.k8s.io/v1beta2",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "theirs"},
            "spec": {"deviceSelector": selector, "taint": taint},
        }
    )
    assert not any(taint_news(story.cluster, ON))
