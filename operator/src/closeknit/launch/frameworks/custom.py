"""The contract of whatever else: the family of RANK, as far as it is true of a whole Pod.

RANK is that of the Pod's first GPU. With one GPU in each Pod (topology.gpusPerNode: 1) that is all that a process
needs; with more of them the script starts one process for each, and adds what it counts to RANK and LOCAL_RANK. The
file /etc/closeknit/ranks has all nodes with their ranks, /etc/closeknit/servers the hosts of parameter servers.
"""

from collections.abc import Mapping

from closeknit.launch.frameworks.contract import Contract
from closeknit.launch.frameworks.hostfile import ranks, servers
from closeknit.launch.frameworks.pytorch import master_port
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.variable import Variable


def variables(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """Who this Pod is among the ranks, and where they meet; of a Pod without ranks only where."""
    own = (
        Variable("RANK", str(member.first_rank), "of this Pod's first GPU; its process k adds k"),
        Variable("LOCAL_RANK", "0", "likewise"),
        Variable("LOCAL_WORLD_SIZE", str(member.rank_count), "GPUs of this Pod"),
        Variable("NODE_RANK", str(member.index), "nodes are ordered so that neighbours are near"),
    )
    return (
        Variable("MASTER_ADDR", gang.coordinator, "ranks meet at node rank 0"),
        Variable("MASTER_PORT", master_port(gang), "PyTorch's default, where Pods have a network of their own"),
        Variable("WORLD_SIZE", str(gang.world_size), "all ranks"),
        *(own if member.uuids else (Variable("SERVER_RANK", str(member.index), "of this parameter server"),)),
    )


def _files(gang: Gang) -> Mapping[str, str]:
    return {**ranks(gang), **servers(gang)}


CONTRACT = Contract(variables, files=_files)
