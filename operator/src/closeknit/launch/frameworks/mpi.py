"""The contract of MPI, and of Horovod, which starts its ranks the same way: ssh from node rank 0.

The Pod of node rank 0 runs the template's command, which is mpirun, mpiexec or horovodrun; the others run the sshd of
the same image (ssh.py). Launchers read the hostfile by the variables of their family and give ranks in its order; a
variable of another family means nothing to them. A gang on one node needs no ssh and gets none.
"""

from collections.abc import Mapping

from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.launch.frameworks import ssh
from closeknit.launch.frameworks.contract import Contract, SuccessOf
from closeknit.launch.frameworks.hostfile import HOSTFILE_PATH, MACHINEFILE_PATH, hostfile, machinefile
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.network import Net
from closeknit.launch.variable import Variable

INTERFACE = "eth0"  # what containerd and CRI-O call a Pod's first interface, whatever the network
PATIENCE_S = "300"  # PyTorch gives ranks half an hour to meet, JAX these five minutes

_INTERFACES = (
    Variable("HYDRA_IFACE", INTERFACE, "others cannot look up a Pod's bare host name, which it would tell"),
    Variable("I_MPI_HYDRA_IFACE", INTERFACE, "the same for Intel MPI"),
)


_FURTHER = "the Pods have further interfaces, which need not lead to all other nodes"
_ONE_INTERFACE = (
    Variable("OMPI_MCA_btl_tcp_if_include", INTERFACE, _FURTHER),
    Variable("OMPI_MCA_oob_tcp_if_include", INTERFACE, f"{_FURTHER}; Open MPI 4"),
    Variable("PRTE_MCA_prte_if_include", INTERFACE, f"{_FURTHER}; Open MPI 5"),
)


def _data(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """By which interfaces MPI's own data goes, where it would try all that a Pod has. NICs that only the template knows
    of, and functions, whose names are unknown before the Pod runs, are not kept from UCX."""
    if not (gang.is_spread and gang.has_more_interfaces) or gang.on_host_network:
        return ()
    if gang.net is Net.VERBS and not member.has_functions:
        devices = Variable("UCX_NET_DEVICES", ",".join((*member.nics, INTERFACE)), "the NICs nearest to the GPUs")
    elif gang.net.is_sockets:
        devices = Variable("UCX_NET_DEVICES", INTERFACE, _FURTHER)
    else:
        return _ONE_INTERFACE
    return (*_ONE_INTERFACE, devices)


def variables(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """Where the launchers find the hosts; the same in every Pod, for they start launchers of their own there."""
    if not member.uuids:
        return ()
    return (
        # Open MPI 4: ORTE.
        Variable("OMPI_MCA_orte_default_hostfile", HOSTFILE_PATH, "hosts in node-rank order"),
        Variable("OMPI_MCA_orte_keep_fqdn_hostnames", "true", "hosts are known by their full names alone"),
        # Open MPI 5: PRRTE, which does not read the names above.
        Variable("PRTE_MCA_prte_default_hostfile", HOSTFILE_PATH, "the same for Open MPI 5"),
        Variable("PRTE_MCA_prte_keep_fqdn_hostnames", "true", "the same for Open MPI 5"),
        Variable("OMPI_ALLOW_RUN_AS_ROOT", "1", "a container's root is nobody outside"),
        Variable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", "it wants to be told twice"),
        # MPICH and Intel MPI: Hydra.
        Variable("HYDRA_HOST_FILE", MACHINEFILE_PATH, "the same for MPICH"),
        Variable("HYDRA_LAUNCHER", "ssh", "MPICH would take what it finds"),
        Variable("I_MPI_HYDRA_HOST_FILE", MACHINEFILE_PATH, "the same for Intel MPI"),
        Variable("I_MPI_HYDRA_BOOTSTRAP", "ssh", "Intel MPI would take what it finds"),
        # Horovod: it gives hosts and ranks 30 s each.
        Variable("HOROVOD_START_TIMEOUT", PATIENCE_S, "hosts that start at different speeds"),
        Variable("HOROVOD_GLOO_TIMEOUT_SECONDS", PATIENCE_S, "ranks that load their libraries at different speeds"),
        *(() if gang.on_host_network else _INTERFACES),  # a node's are unknown
        *_data(gang, member),
        Variable("CLOSEKNIT_WORLD_SIZE", str(gang.world_size), "for the launchers that want a number"),
    )


def _files(gang: Gang) -> Mapping[str, str]:
    return {**hostfile(gang), **machinefile(gang), **ssh.files(gang)}


def _ends(_spec: TrainingJobSpec) -> SuccessOf:
    return SuccessOf.LAUNCHER


CONTRACT = Contract(variables, files=_files, containers=ssh.containers, uses_ssh=True, ends=_ends)
