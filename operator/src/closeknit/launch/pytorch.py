"""torchrun's contract: static rendezvous at node rank 0.

Every argument of torchrun has a variable PET_<ARGUMENT> (torch/distributed/run.py), so that `torchrun train.py` is all
that a template has to run. Static, because the c10d rendezvous sorts nodes by host name and forgets our order.
Global ranks are counted over the nodes before in node-rank order, also where nodes have unequal shares: torchrun's
documentation says that shares must be equal, its code adds them up (SimpleElasticAgent._assign_worker_ranks), and two
agents of torch 1.13 with 2 and 3 processes ran as ranks 0-1 and 2-4. TORCH_ELASTIC_WORKER_IDENTICAL=1 is the exception.
RANK, WORLD_SIZE and LOCAL_RANK belong to the processes that torchrun starts. They are not set here: a script that is
started without torchrun would take one value for all of a Pod's GPUs as its own rank, and wait for the others for ever.
"""

from closeknit.launch.contract import Contract
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.variable import Variable

MASTER_PORT = 29500  # torchrun's own default


def variables(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """Variables of torchrun on one node, and those of the flight recorder, which is cheap and tells who hung."""
    coordinator, port = gang.coordinator, str(MASTER_PORT)
    return (
        Variable("PET_NNODES", str(len(gang.workers)), "fixed number of nodes"),
        Variable("PET_NPROC_PER_NODE", str(member.rank_count), "one process for each GPU of this node"),
        Variable("PET_NODE_RANK", str(member.index), "nodes are ordered so that neighbours are near"),
        Variable("PET_MASTER_ADDR", coordinator, "ranks meet at node rank 0"),
        Variable("PET_MASTER_PORT", port, "torchrun's default"),
        Variable("MASTER_ADDR", coordinator, "the same for launchers other than torchrun"),
        Variable("MASTER_PORT", port, "the same for launchers other than torchrun"),
        Variable("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "a hung collective names its stragglers"),
        Variable("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000", "collectives that the flight recorder keeps"),
    )


CONTRACT = Contract(variables)
