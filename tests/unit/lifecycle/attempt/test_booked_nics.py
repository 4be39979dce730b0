"""The NICs that a job was booked are the ones that its Pods ask for, whatever becomes of the node meanwhile."""

from typing import Any

import pytest

from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.booking.booking import BookingShare, booking, decoded, encoded
from closeknit.launch.gang import Gang
from closeknit.lifecycle.attempt.launched_gang import Lost, gang
from scenarios.manifests import Manifest, booked, node, node_topology, pod, training_job
from scenarios.views import cluster

NODES = ("gpu-1", "gpu-2")


def followed(*manifests: Manifest, rdma_resource: str = "rdma/b") -> Gang | Lost:
    placement = booked(*((name, range(8)) for name in NODES), nics=["mlx5_0"], rdma_resource=rdma_resource)
    found = cluster(*manifests, *map(node_topology, NODES), training_job(spec={"gpus": 16}, placement=placement))
    (job,) = found.jobs.values()
    held = booking(job)
    assert isinstance(job, TrainingJob) and held is not None
    return gang(job, held, found, ipc_lock=True)


def offering(**resources: str) -> list[Manifest]:
    allocatable = {f"rdma/{name}": amount for name, amount in resources.items()}
    return [node(name, allocatable=allocatable) for name in NODES]


def test_another_resource_that_is_free_again_is_not_asked_for() -> None:
    made = followed(*offering(a="8", b="8"))
    assert isinstance(made, Gang)
    assert {member.rdma_resource for member in made.members} == {"rdma/b"}


def test_the_job_itself_may_have_taken_the_last() -> None:
    made = followed(*offering(b="1"), *(pod(f"other-{name}", node=name, requests={"rdma/b": "1"}) for name in NODES))
    assert isinstance(made, Gang)


GONE: dict[str, tuple[dict[str, str], str, str]] = {
    "is no longer there": ({"a": "8"}, "rdma/b", "rdma/b"),
    "is there no more than in name": ({"a": "8", "b": "0"}, "rdma/b", "rdma/b"),
    "was never told": ({"a": "8"}, "", "an rdma/ resource"),
}


@pytest.mark.parametrize(("resources", "stored", "named"), GONE.values(), ids=GONE.keys())
def test_a_booking_whose_resource(resources: dict[str, str], stored: str, named: str) -> None:
    made = followed(*offering(**resources), rdma_resource=stored)
    assert made == Lost("gpu-1", f"node gpu-1 no longer offers {named} for mlx5_0:1")


def share(name: str, **more: Any) -> BookingShare:
    return BookingShare(node=name, gpus=(0, 1), first_rank=int(name[-1]) * 2 - 2, binding=Binding.DRA, **more)


def test_a_resource_is_stored_once_for_all_nodes_that_have_it() -> None:
    shares = (
        share("gpu-1", nics=("mlx5_0:1",), rdma_resource="rdma/a"),
        share("gpu-2", nics=("mlx5_0:1",), rdma_resource="rdma/a"),
        share("gpu-3"),
        share("gpu-4", nics=("mlx5_0:1",), rdma_resource="rdma/a"),
        share("gpu-5", nics=("mlx5_1:1",), rdma_resource="rdma/b"),
    )
    nodes = encoded(shares).nodes
    assert [each.rdma_resource for each in nodes] == ["rdma/a", None, None, None, "rdma/b"]
    job = training_job(placement={"nodeCount": 5, "nodes": [each.wire() for each in nodes]})
    stored = TrainingJob.parse(job).status.placement
    assert stored is not None
    assert decoded(stored) == shares
