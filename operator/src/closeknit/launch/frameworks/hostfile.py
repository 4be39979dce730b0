"""The hosts of a gang in node-rank order, as the launchers that read files want them."""

from collections.abc import Mapping

from closeknit.api.names import Role
from closeknit.launch.frameworks.mounted_files import FILES_PATH
from closeknit.launch.gang import Gang

HOSTFILE = "hostfile"
MACHINEFILE = "machinefile"
RANKS = "ranks"
SERVERS = "servers"
HOSTFILE_PATH = f"{FILES_PATH}/{HOSTFILE}"
MACHINEFILE_PATH = f"{FILES_PATH}/{MACHINEFILE}"


def hostfile(gang: Gang) -> Mapping[str, str]:
    """`<host> slots=<ranks>`, a line for each node: Open MPI, Horovod and DeepSpeed give ranks in the order of the
    lines."""
    return {HOSTFILE: "".join(f"{gang.host(worker)} slots={worker.rank_count}\n" for worker in gang.workers)}


def machinefile(gang: Gang) -> Mapping[str, str]:
    """`<host>:<ranks>`: MPICH's and Intel MPI's Hydra."""
    return {MACHINEFILE: "".join(f"{gang.host(worker)}:{worker.rank_count}\n" for worker in gang.workers)}


def ranks(gang: Gang) -> Mapping[str, str]:
    """`<first rank> <ranks> <host>`: for whatever else. A line for each node and not for each rank, for a ConfigMap has
    1 MiB."""
    return {RANKS: "".join(f"{worker.first_rank} {worker.rank_count} {gang.host(worker)}\n" for worker in gang.workers)}


def servers(gang: Gang) -> Mapping[str, str]:
    """The host of each parameter server, a line each; no file where the job has none."""
    hosts = [gang.host(member) for member in gang.members if member.role is Role.PARAMETER_SERVER]
    return {SERVERS: "".join(f"{host}\n" for host in hosts)} if hosts else {}
