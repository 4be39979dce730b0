"""The largest job that the API takes fits an object: etcd refuses one above 1.5 MiB, and a template needs room, too."""

from closeknit.api.trainingjob import MAX_GPUS, MAX_RESTARTS
from closeknit.api.trainingjob_status import (
    Actual,
    Binding,
    EndedAttempt,
    Exit,
    NodeAssignment,
    Phases,
    PlacementStatus,
    TrainingJobStatus,
)

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
    ends = TrainingJobStatus(attempts=[END] * 10, charges=["2026-11-25T22:00:00Z"] * MAX_RESTARTS)
    sizes = [len(each.model_dump_json(by_alias=True, exclude_none=True)) for each in (status, ends)]
    assert sum(sizes) < ROOM_FOR_STATUS, sizes


EXIT = Exit(
    pod="llama-pretraining-of-the-largest-model-ab-a12345-worker-08191",
    node="gpu-node-08191.rack",
    exit_code=137,
    reason="R" * 64,
    message="w" * 256,
)
END = EndedAttempt(
    number=12345,
    reason="RestartLimitExceeded",
    charged=True,
    ended="2026-11-25T22:00:00Z",
    message="m" * 1024,
    in_place=True,
    ran="1000000s",
    phases=Phases(**dict.fromkeys(Phases.model_fields, "100000s")),
    exits=[EXIT] * 8,
)
