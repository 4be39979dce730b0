"""Jobs on nodes of a device plugin where nobody tells which GPUs other Pods have: the count is enough where any GPUs
are as good as any others."""

from typing import Any

from closeknit.cluster.node.node import NodeView
from closeknit.controller.gauges.totals import totals
from scenarios.machines import dgx1v, hgx_h200, pairs8
from scenarios.manifests import allocation, node, node_topology, pod, training_job, uuids
from scenarios.stories import booked_nodes, ended
from scenarios.story import Story

MACHINES = {"hgx": hgx_h200, "dgx": dgx1v, "pairs": pairs8}


def story(*jobs: dict[str, Any], machine: str = "hgx", taken: int = 1, **status: Any) -> Story:
    """One machine, of which a notebook has so many GPUs; `status` is what its agent says."""
    topology = {**node_topology("gpu-1", **status), "spec": MACHINES[machine]("gpu-1").wire()}
    found = Story(node("gpu-1"), topology, pod(requests={"nvidia.com/gpu": str(taken)}), *jobs)
    found.settle()
    return found


def job(name: str, gpus: int) -> dict[str, Any]:
    return training_job(name, spec={"gpus": gpus})


def gpus(found: Story, name: str) -> list[int] | None:
    placement = found.status(name).placement
    return None if placement is None else placement.nodes[0].gpus


def reason(found: Story, name: str) -> str:
    pending = found.status(name).pending
    assert pending is not None
    return str(pending.reason)


def verified(found: Story, name: str = "train") -> tuple[str, str, str]:
    told = next(each for each in found.status(name).conditions if each.type == "PlacementVerified")
    return told.status, told.reason, told.message or ""


def tell(found: Story, **given: tuple[int, ...]) -> None:
    """The agent comes to know which GPUs Pods have, by the names of their jobs, or `notebook`."""
    topology = found.objects["NodeTopology", "", "gpu-1"]
    topology["status"]["allocations"] = [
        allocation("ml", name, uuids("gpu-1", *which))
        if name == "notebook"
        else allocation("team-b", f"{name}-a1-worker-00000", uuids("gpu-1", *which))
        for name, which in given.items()
    ]
    found.settle()


def view(found: Story) -> NodeView:
    return found.cluster.nodes["gpu-1"]


def counted(found: Story) -> dict[str, int]:
    return {state: number for state, number in totals(found.cluster, found.now).gpus.items() if number}


def test_it_runs_beside_them_and_says_that_nobody_told_its_gpus() -> None:
    found = story(job("train", 4))
    (share,) = booked_nodes(found)
    assert (share.gpus, share.binding) == ([0, 1, 2, 3], "BestEffort")
    found.run_all()
    found.settle()
    assert booked_nodes(found)[0].actual == "Unknown"
    assert verified(found) == ("Unknown", "NotReported", "nobody has told which GPUs the Pods got on gpu-1")
    assert counted(found) == {"held": 5, "free": 3}


def test_jobs_beside_each_other_get_no_more_than_is_left_and_none_twice() -> None:
    found = story(job("a", 4), job("b", 3), job("c", 1))
    assert (gpus(found, "a"), gpus(found, "b"), gpus(found, "c")) == ([0, 1, 2, 3], [4, 5, 6], None)
    assert reason(found, "c") == "InsufficientGPUs"
    assert counted(found) == {"held": 8}
    found.run_all()
    found.settle()
    assert (gpus(found, "c"), counted(found)) == (None, {"held": 8})
    del found.objects["Pod", "ml", "notebook"]
    found.settle()
    assert gpus(found, "c") == [7]
    assert counted(found) == {"held": 8}


def test_what_is_told_of_them_later_takes_nothing_from_anybody_and_gives_nothing_twice() -> None:
    """The notebook turns out to have a GPU that was foreseen for the job, whose own are told later still."""
    found = story(job("train", 4))
    found.run_all()
    found.settle()
    tell(found, notebook=(0,))
    assert (view(found).free_gpus, counted(found)) == (3, {"held": 5, "free": 3})
    found.add(job("next", 4))
    found.settle()
    assert reason(found, "next") == "InsufficientGPUs"
    found.edit_job("next", gpus=3)
    found.settle()
    assert gpus(found, "next") is not None
    assert counted(found) == {"held": 8}
    tell(found, notebook=(0,), train=(1, 2, 5, 6))
    assert counted(found) == {"held": 8}
    assert (gpus(found, "train"), verified(found)) == (
        [1, 2, 5, 6],
        ("True", "Verified", "every Pod has the planned GPUs"),
    )
    assert ended(found) == []
    found.run_all()
    tell(found, notebook=(0,), train=(1, 2, 5, 6), next=(3, 4, 7))
    assert (gpus(found, "next"), verified(found, "next")[0]) == ([3, 4, 7], "True")
    assert view(found).plugin is not None
    assert sorted(view(found).holders) == list(range(8))


def test_where_the_choice_matters_a_job_waits_until_it_is_told_which_they_are() -> None:
    found = story(job("train", 4), machine="dgx", taken=2)
    pending = found.status().pending
    assert pending is not None
    assert pending.message.startswith(
        "needs 4 GPUs; 3 are free on 1 node; 5 excluded: 3 free where nobody knows which GPUs other Pods hold (set "
        "agent.podResources in the chart's values, and the agent of gpu-1 tells), 2 held by 1 Pod"
    )
    tell(found, notebook=(0, 3))
    assert gpus(found, "train") == [4, 5, 6, 7]


def test_a_size_that_cannot_be_given_between_sizes_that_can_is_told_the_remedy_as_well() -> None:
    """Of five of four pairs whichever are two, and all five, are as good as any; not so three."""
    assert gpus(story(job("train", 5), machine="pairs", taken=3), "train") is not None
    pending = story(job("train", 3), machine="pairs", taken=3).status().pending
    assert pending is not None
    assert pending.message == (
        "needs 3 GPUs; 5 are free on 1 node, but on 1 node nobody knows which GPUs other Pods hold, and a device "
        "plugin could give the wrong ones (set agent.podResources in the chart's values, and the agent of gpu-1 "
        "tells); 3 excluded: 3 held by 1 Pod"
    )


def test_what_a_job_was_given_without_a_word_is_not_believed_to_be_what_was_foreseen() -> None:
    """The one GPU of the first job may be any, also when the notebook has gone: whichever it is, two of the others are
    joined by two links; and of six there may be no four that a plugin takes for sure and that are joined as well."""
    found = story(job("one", 1), job("two", 1), machine="dgx")
    found.run_all()
    found.settle()
    del found.objects["Pod", "ml", "notebook"]
    found.settle()
    found.add(job("pair", 2))
    found.settle()
    assert gpus(found, "pair") is not None
    found.edit_job("pair", suspend=True)
    found.settle()
    found.add(job("four", 4))
    found.settle()
    assert reason(found, "four") == "InsufficientGPUs"
    tell(found, one=(0,), two=(3,))
    assert (gpus(found, "one"), gpus(found, "two"), gpus(found, "four")) == ([0], [3], [4, 5, 6, 7])


def test_a_broken_gpu_that_the_plugin_could_give_keeps_all_from_being_given() -> None:
    found = story(job("train", 2))
    assert gpus(found, "train") is not None
    broken = story(job("train", 2), gpus=[{"index": 5, "state": "Unhealthy", "reasons": ["XID79"]}])
    assert reason(broken, "train") == "InsufficientGPUs"
    assert counted(broken) == {"held": 1, "unusable": 7}
