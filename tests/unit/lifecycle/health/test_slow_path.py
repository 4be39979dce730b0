"""A running job whose data moves over a slower way than it was placed for: when that is told, and when nothing is."""

from typing import Any

import pytest

from closeknit.controller.gauges.totals import totals
from closeknit.controller.metrics import Metrics
from closeknit.lifecycle.health.slow_path import SILENT_FOR
from closeknit.lifecycle.status.degraded import FIXED
from closeknit.lifecycle.writes.answers import Answers
from scenarios.manifests import allocation, cluster_topology, node_topology, training_job, uuids
from scenarios.networks import degraded, job, nics, two
from scenarios.stories import two_plugin_nodes
from scenarios.story import Story, plugin_node

JOINED = {"switched": True, "linksPerGPU": [18] * 8}
SEE_LOG = "; NCCL says why with NCCL_DEBUG=INFO; what the user sets of NCCL's wins over closeknit; " + FIXED
FELL_BACK = (
    "its ranks were to talk over RDMA (roce-0:1, roce-1:1 of gpu-1), and on gpu-1, gpu-2 data moves over sockets and "
    f"none over RDMA{SEE_LOG}"
)


def over_rdma(**spec: Any) -> Story:
    """A job on two nodes with RoCE, which runs."""
    wanted = job()
    wanted["spec"].update(spec)
    return ran(Story(*two(nics("RoCE"), hca="8"), wanted))


def on_one(spec: dict[str, Any] | None = None) -> Story:
    """A job on one machine with NVSwitches, which runs."""
    machine = node_topology("gpu-1")
    machine["spec"]["nvlink"] = JOINED
    return ran(Story(plugin_node("gpu-1")[0], machine, training_job(spec={"gpus": 8, **(spec or {})})))


def ran(story: Story) -> Story:
    story.settle()
    story.run_all()
    story.settle()
    return story


def tell(story: Story, *ways: list[str]) -> None:
    """The agents of gpu-1, gpu-2, ... tell the ways of the job's Pods."""
    for rank, paths in enumerate(ways):
        name = f"gpu-{rank + 1}"
        told = allocation("team-b", f"train-a1-worker-{rank:05d}", uuids(name, *range(8)))
        story.objects["NodeTopology", "", name].setdefault("status", {})["allocations"] = [{**told, "paths": paths}]
    story.settle()


def found(story: Story) -> tuple[str, str, str] | None:
    told = degraded(story)
    return None if told is None else (told.status, told.reason, told.message or "")


def test_nobody_counts_what_functions_move() -> None:
    """Those of SR-IOV are in the Pods; the counters of their NICs leave them out."""
    declared = cluster_topology(fabric={"sriovNetworks": [{"resource": "x.example/rail0", "network": "default/rail0"}]})
    story = ran(Story(declared, *two(nics("RoCE"), **{"x.example/rail0": "8"}), job("Required")))
    tell(story, ["NVLink", "Socket"], ["NVLink", "Socket"])
    story.pass_time(SILENT_FOR.total_seconds())
    story.settle()
    assert found(story) is None


def test_a_job_that_fell_back_to_sockets_is_told_of_after_ten_minutes() -> None:
    story = over_rdma()
    tell(story, ["NVLink", "Socket"], ["NVLink", "Socket"])
    assert found(story) is None
    (waits,) = [plan for plan in story.plans() if plan.wake_after_s is not None]
    assert waits.wake_after_s == SILENT_FOR.total_seconds()
    story.pass_time(SILENT_FOR.total_seconds())
    story.settle()
    assert found(story) == ("True", "FellBackToSockets", FELL_BACK)
    metrics = Metrics()
    metrics.show(totals(story.cluster, story.now))
    assert metrics.registry.get_sample_value("closeknit_degraded_jobs", {"reason": "FellBackToSockets"}) == 1


def test_it_is_taken_back_when_data_moves_over_rdma() -> None:
    story = over_rdma()
    story.pass_time(SILENT_FOR.total_seconds())
    tell(story, ["Socket"], ["Socket"])
    assert found(story) == ("True", "FellBackToSockets", FELL_BACK)
    tell(story, ["RDMA", "Socket"], ["Socket"])
    assert found(story) == ("False", "AsPlanned", "")
    metrics = Metrics()
    metrics.show(totals(story.cluster, story.now))
    assert metrics.registry.get_sample_value("closeknit_degraded_jobs", {"reason": "FellBackToSockets"}) is None


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param((), id="nobody tells anything"),
        pytest.param(([], []), id="nothing has moved, or nobody can count it"),
        pytest.param((["Socket"], []), id="only one of them read its data over sockets"),
        pytest.param((["Socket"], ["RDMA"]), id="one of them over RDMA, so all"),
        pytest.param((["NVLink", "RDMA", "Socket"], ["NVLink", "RDMA", "Socket"]), id="all as planned"),
    ],
)
def test_without_proof_nothing_is_told(ways: tuple[list[str], ...]) -> None:
    story = over_rdma()
    story.pass_time(SILENT_FOR.total_seconds())
    tell(story, *ways)
    assert found(story) is None


def test_what_was_planned_over_sockets_is_no_detour() -> None:
    story = ran(two_plugin_nodes())
    story.pass_time(SILENT_FOR.total_seconds())
    tell(story, ["Socket"], ["Socket"])
    assert found(story) is None


def test_workers_of_parameter_servers_talk_over_sockets() -> None:
    servers = {"replicas": 1, "template": {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}}
    story = over_rdma()
    story.objects["TrainingJob", "team-b", "train"]["spec"]["parameterServers"] = servers
    story.pass_time(SILENT_FOR.total_seconds())
    before = [plan for plan in story.plans() if plan.status is not None]
    tell(story, ["Socket"], ["Socket"])
    assert (found(story), before) == (None, [])


@pytest.mark.parametrize(
    ("spec", "is_told"),
    [
        pytest.param({}, True, id="PyTorch"),
        pytest.param({"topology": {"nvlink": "Ignored"}}, False, id="it did not ask for NVLink"),
        pytest.param({"framework": "Custom"}, False, id="nobody knows what it does"),
        pytest.param({"framework": "Custom", "topology": {"nvlink": "Required"}}, True, id="but it says"),
    ],
)
def test_nvlink_that_stays_silent(spec: dict[str, Any], is_told: bool) -> None:
    story = on_one(spec)
    tell(story, ["Socket"])
    story.pass_time(SILENT_FOR.total_seconds())
    story.settle()
    words = f"the GPUs of gpu-1 were to talk over NVLink, and data moves over sockets and none over NVLink{SEE_LOG}"
    assert found(story) == (("True", "NVLinkSilent", words) if is_told else None)
    tell(story, ["NVLink", "Socket"])
    assert found(story) == (("False", "AsPlanned", "") if is_told else None)


def test_gpus_that_no_nvlink_joins_have_none_to_be_silent() -> None:
    story = ran(Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8})))
    story.pass_time(SILENT_FOR.total_seconds())
    tell(story, ["Socket"])
    assert found(story) is None


def test_a_refusal_of_ipc_lock_stays_the_reason() -> None:
    """The next Pods are made by it."""
    story = Story(*two(nics("RoCE"), hca="8"), job())
    story.answers["uid-of-train"] = Answers(ipc_lock_refused=True)
    ran(story)
    told = found(story)
    assert told is not None and told[:2] == ("True", "IPCLockRefused")
    story.pass_time(SILENT_FOR.total_seconds())
    tell(story, ["Socket"], ["Socket"])
    assert found(story) == ("True", "IPCLockRefused", f"{told[2]}; {FELL_BACK}")
    tell(story, ["RDMA", "Socket"], ["RDMA", "Socket"])
    assert found(story) == told
