"""What a job may count on as its own: a cluster of its own is made only where its Pods hold what can be given."""

from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.own_gpus import with_own_gpus_free
from scenarios.manifests import node, training_job, worker
from scenarios.story import plugin_node
from scenarios.views import NOON, cluster

JOB = JobKey("team-b", "train")


def left_behind(*nodes: dict[str, Any]) -> tuple[Cluster, Cluster]:
    """A cluster in which a Pod of an ended attempt is on gpu-1, and the same for the job whose Pod that is."""
    seen = cluster(training_job(attempt=2), *nodes, *plugin_node("gpu-2"), worker(node="gpu-1")).at(NOON)
    return seen, with_own_gpus_free(seen.jobs[JOB], seen.pods_of(JOB), seen)


def offered(seen: Cluster) -> int:
    plugin = seen.nodes["gpu-1"].plugin
    assert plugin is not None
    return plugin.free


def test_what_its_own_pods_of_before_hold_counts_as_free_for_the_job() -> None:
    seen, own = left_behind(*plugin_node("gpu-1"))
    assert offered(seen) == 7
    assert offered(own) == 8


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([node("gpu-1", ready="Unknown"), *plugin_node("gpu-1")[1:]], id="not ready"),
        pytest.param([], id="gone"),
    ],
)
def test_pods_on_a_node_that_is_left_out_alter_nothing_so_that_the_job_shares_the_answer_of_all_others(
    nodes: list[dict[str, Any]],
) -> None:
    seen, own = left_behind(*nodes)
    assert own is seen
