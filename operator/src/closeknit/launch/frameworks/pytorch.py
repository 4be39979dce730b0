"""PyTorch's contract: static rendezvous at node rank 0; of an elastic job, one that nodes may join and leave.

Every argument of torchrun but --numa-binding has a variable PET_<ARGUMENT> (torch/distributed/run.py), so that
`torchrun train.py` is all that a template has to run. Static, because the c10d rendezvous sorts nodes by host name and
forgets our order; where a job is elastic it has to be that one, and our host names sort as the node ranks do.
Global ranks are counted over the nodes before in node-rank order, also where nodes have unequal shares: torchrun's
documentation says that shares must be equal, its code adds them up (SimpleElasticAgent._assign_worker_ranks), and two
agents of torch 1.13 with 2 and 3 processes ran as ranks 0-1 and 2-4. TORCH_ELASTIC_WORKER_IDENTICAL=1 is the exception.
RANK, WORLD_SIZE and LOCAL_RANK belong to the processes that torchrun starts. They are not set here: a script that is
started without torchrun would take one value for all of a Pod's GPUs as its own rank, and wait for the others for ever.
One that starts its processes itself counts from CLOSEKNIT_FIRST_RANK.
"""

from closeknit.launch.frameworks.contract import Contract
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.variable import Variable

MASTER_PORT = 29500  # torchrun's own default
RENDEZVOUS_PORT = 29400  # that of its c10d rendezvous
STORE_TIMEOUT_S = 600  # as torchrun's static rendezvous waits


def variables(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """Variables of torchrun on one node, and those of the flight recorder, which is cheap and tells who hung; none
    where there are no ranks."""
    if not member.uuids:
        return ()
    rendezvous = _static if gang.job.spec.elastic is None else _elastic
    return (
        *rendezvous(gang, member),
        *own_processes(gang, member),
        Variable("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "a hung collective names its stragglers"),
        Variable("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000", "collectives that the flight recorder keeps"),
    )


def master_port(gang: Gang) -> str:
    """The port of node rank 0 that ranks meet at."""
    return str(gang.port(gang.members[0], MASTER_PORT))


def _static(gang: Gang, member: Member) -> tuple[Variable, ...]:
    return (
        Variable("PET_NNODES", str(len(gang.workers)), "fixed number of nodes"),
        Variable("PET_NPROC_PER_NODE", str(member.rank_count), "one process for each GPU of this node"),
        Variable("PET_NODE_RANK", str(member.index), "nodes are ordered so that neighbours are near"),
        Variable("PET_MASTER_ADDR", gang.coordinator, "ranks meet at node rank 0"),
        Variable("PET_MASTER_PORT", master_port(gang), "torchrun's default, where Pods have a network of their own"),
    )


def _elastic(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """torchrun gives node ranks by itself, in the order of the host names, which have leading zeros.

    It is to begin with all nodes: with fewer as the least it waits for the others for 30 s, begins without one whose
    image is still pulled, and ends that run again when it comes.
    """
    return (
        Variable("PET_NNODES", f"{len(gang.workers)}:{len(gang.workers)}", "all nodes: closeknit changes the size"),
        Variable("PET_NPROC_PER_NODE", str(member.rank_count), "one process for each GPU of this node"),
        Variable("PET_RDZV_BACKEND", "c10d", "the rendezvous that nodes may join and leave"),
        Variable("PET_RDZV_ENDPOINT", gang.meeting(RENDEZVOUS_PORT), "nodes meet at the first one"),
        Variable(
            "PET_RDZV_CONF", _store(member), "its store is at the first one, and is waited for as in a static one"
        ),
        Variable("PET_RDZV_ID", f"{gang.job.metadata.uid or ''}-{gang.attempt}", "one rendezvous for each attempt"),
        Variable("PET_LOCAL_ADDR", gang.host(member), "nodes are sorted by this name"),
    )


def _store(member: Member) -> str:
    """torchrun before 2.0 does not know its own Pod by the name that others know it by: then no rank has the store. Nor
    would it wait for that for more than a minute (seen on two real nodes)."""
    return f"is_host={'true' if member.index == 0 else 'false'},read_timeout={STORE_TIMEOUT_S}"


def own_processes(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """What a script that starts a process for each GPU itself needs, under names that mean nothing to any library."""
    return (
        Variable("MASTER_ADDR", gang.coordinator, "the same for launchers other than torchrun"),
        Variable("MASTER_PORT", master_port(gang), "the same for launchers other than torchrun"),
        Variable("CLOSEKNIT_WORLD_SIZE", str(gang.world_size), "all ranks, for scripts that start processes"),
        Variable("CLOSEKNIT_FIRST_RANK", str(member.first_rank), "rank of this node's first process, likewise"),
        Variable("CLOSEKNIT_LOCAL_WORLD_SIZE", str(member.rank_count), "processes of this node, likewise"),
    )


CONTRACT = Contract(variables, sizes={"PET_NNODES": "{nodes}:{nodes}", "CLOSEKNIT_WORLD_SIZE": "{ranks}"})
