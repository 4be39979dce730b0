"""JAX's contract: one process on each node, which drives all GPUs of its Pod.

jax.distributed.initialize() reads the coordinator's address from its variable and neither the number of processes nor
their ids (jax/_src/distributed.py, 0.10): the script passes these two. Without them it would ask Kubernetes, which Pods
of a TrainingJob have no right to and no Job to be found by.
"""

from closeknit.launch.frameworks.contract import Contract
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.variable import Variable

COORDINATOR_PORT = 55527  # what JAX takes on Kubernetes (jax/_src/clusters/k8s_cluster.py)


def variables(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """Where the coordinator is, and who this is; JAX_LOCAL_DEVICE_IDS is left alone: a process has all that it sees."""
    if not member.uuids:
        return ()
    return (
        Variable("JAX_COORDINATOR_ADDRESS", gang.meeting(COORDINATOR_PORT), "processes meet at node rank 0"),
        Variable("JAX_NUM_PROCESSES", str(len(gang.workers)), "one process on each node, for the script to pass on"),
        Variable("JAX_PROCESS_ID", str(member.index), "nodes are ordered so that neighbours are near; likewise"),
    )


CONTRACT = Contract(variables, sizes={"JAX_NUM_PROCESSES": "{nodes}"})
