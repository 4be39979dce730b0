"""The largest job that the API takes fits an object: etcd refuses one above 1.5 MiB, and a template needs room, too."""

from closeknit.api.trainingjob import MAX_GPUS
from closeknit.api.trainingjob_status import Actual, Binding, NodeAssignment, PlacementStatus, TrainingJobStatus

GPUS_PER_NODE = 8
ROOM_FOR_STATUS = 1_200_000  # 1.5 MiB less a template of 256 KiB, metadata and the record of field owners


def test_the_status_of_the_largest_job_fits() -> None:
    nodes = [
        NodeAssignment(
            name=f"gpu-node-{number:05d}.rack",
            gpus=list(range(GPUS_PER_NODE)),
            ranks=f"{number * GPUS_PER_NODE}-{number * GPUS_PER_NODE + GPUS_PER_NODE - 1}",
            nics=[f"mlx5_{nic}" for nic in range(8)] if number == 0 else None,  # absent: as the node before
            binding=Binding.DRA,
            topology_generation=4,
            actual=Actual.VERIFIED,
        )
        for number in range(MAX_GPUS // GPUS_PER_NODE)
    ]
    status = TrainingJobStatus(attempt=1, placement=PlacementStatus(node_count=len(nodes), nodes=nodes))
    assert len(status.model_dump_json(by_alias=True, exclude_none=True)) < ROOM_FOR_STATUS
