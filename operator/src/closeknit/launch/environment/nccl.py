"""NCCL's variables: discovered fact -> setting, as one table. What no fact calls for is left to NCCL, whose defaults
are measured."""

from hashlib import sha256

from closeknit.api.names import MNNVL, Role
from closeknit.api.nodetopology import Transport
from closeknit.launch.cloud_platforms import Platform
from closeknit.launch.cpus import cpus
from closeknit.launch.environment.nccl_versions import is_read
from closeknit.launch.environment.rule import VariableRule
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.network import Net
from closeknit.launch.remedy import Remedy
from closeknit.launch.template import SHM_PATH, trainer
from closeknit.launch.variable import Variable

NVLS = "NCCL_NVLS_ENABLE"
POD_INTERFACE = "eth0"  # what container runtimes call the interface of a Pod's own network
# Interfaces of AWS' nodes that lead to no other node; a list of ours replaces NCCL's own, so that lo is named again.
_NO_WAY_OUT = "^lo,docker,pod-id-link,veth"
_RELAXED_ORDERING = "this machine's PCIe needs it for full speed, as its maker's own nccl.conf says"


def _verbs(_gang: Gang, member: Member) -> tuple[Variable, ...]:
    """With the net named, NCCL fails rather than falls back to sockets in silence."""
    if member.has_functions:  # the names of their devices are unknown before the Pod runs
        return (Variable("NCCL_NET", "IB", Net.VERBS.value),)
    # A leading = makes the names exact: mlx5_1 alone would match mlx5_10, too.
    hcas = "=" + ",".join(member.nics)
    return (
        Variable("NCCL_NET", "IB", Net.VERBS.value),
        Variable("NCCL_IB_HCA", hcas, "the NICs nearest to this node's GPUs; Pods see the others, too"),
    )


def _efa(_gang: Gang, _member: Member) -> tuple[Variable, ...]:
    """AWS' plugin takes this name in all its versions, though newer ones have another for themselves."""
    return (
        Variable("NCCL_NET", "AWS Libfabric", Net.EFA.value),
        Variable("NCCL_SOCKET_IFNAME", _NO_WAY_OUT, "interfaces that lead to no other node are left out"),
    )


def _sockets(gang: Gang, _member: Member) -> tuple[Variable, ...]:
    return (Variable("NCCL_NET", "Socket", gang.net.value),)


def _has_wide_sockets(gang: Gang) -> bool:
    """Whether one socket would leave most of the network idle, and every rank has CPUs to serve more of them."""
    declared = gang.fabric.level_bandwidth_gb_s.values()
    if not gang.net.is_sockets or not declared or min(declared) < _WIDE_GB_S:
        return False
    pod = gang.template(Role.WORKER).spec
    given = [worker.cpus for worker in gang.workers if worker.cpus is not None]
    cores = min(given) if given else cpus(pod, trainer(pod))
    return cores is None or cores >= _CPUS_PER_RANK * max(worker.rank_count for worker in gang.workers)


def _more_sockets(_gang: Gang, _member: Member) -> tuple[Variable, ...]:
    """Between Pods of two nodes 16 sockets reached 7.0 to 16.0 GB/s where one reached 1.9 to 3.5
    (docs/measurements/2026-11-22-jobs-on-{2,4}-h200.md). NCCL takes one by itself: it knows the network cards of two
    clouds, and from inside a Pod's network sees none."""
    why = "the site declares at least 100 Gbit/s between nodes, which one socket does not fill"
    return (Variable("NCCL_SOCKET_NTHREADS", "4", why), Variable("NCCL_NSOCKS_PERTHREAD", "4", why))


def _interface(_gang: Gang, _member: Member) -> tuple[Variable, ...]:
    why = "the Pods have further interfaces, which need not lead to all other nodes"
    return (
        Variable("NCCL_SOCKET_IFNAME", f"={POD_INTERFACE}", why),
        Variable("GLOO_SOCKET_IFNAME", POD_INTERFACE, why),
    )


def _marked(gang: Gang, _member: Member) -> tuple[Variable, ...]:
    """A code point is the upper six bits of the traffic class."""
    marking, name = gang.traffic_class, gang.job.spec.network.traffic_class
    if marking is None:
        return ()
    why = f"network.trafficClass is {name}, which ClusterTopology declares so"
    if Transport.ROCE in gang.transports and marking.dscp is not None:
        return (Variable("NCCL_IB_TC", str(marking.dscp << 2), why),)
    if Transport.INFINIBAND in gang.transports and marking.service_level is not None:
        return (Variable("NCCL_IB_SL", str(marking.service_level), why),)
    return ()


def _queue_pairs(gang: Gang, _member: Member) -> tuple[Variable, ...]:
    pairs = str(gang.fabric.qps_per_connection)
    return (Variable("NCCL_IB_QPS_PER_CONNECTION", pairs, "the fabric spreads flows by hashing"),)


def _azure(_gang: Gang, _member: Member) -> tuple[Variable, ...]:
    return (
        Variable("NCCL_IB_PCI_RELAXED_ORDERING", "1", _RELAXED_ORDERING),
        Variable("NCCL_IGNORE_CPU_AFFINITY", "1", "the machine hides which CPUs are near to its GPUs"),
    )


def _wants_words(gang: Gang) -> bool:
    """Whether the user has NCCL tell what it does: a value that is filled in later does not show it yet."""
    return (gang.users_environment(Role.WORKER).get("NCCL_DEBUG", {}).get("value") or "").upper() in ("INFO", "TRACE")


def _words(_gang: Gang, _member: Member) -> tuple[Variable, ...]:
    """Files in the Pod's memory: every user may write there, and NCCL ends where it cannot."""
    why = "the template asks for NCCL's words by NCCL_DEBUG; this is what tells of its way through the machine"
    return (
        Variable("NCCL_DEBUG_SUBSYS", "INIT,ENV,GRAPH,NET", why),
        Variable("NCCL_TOPO_DUMP_FILE", f"{SHM_PATH}/nccl-topology.xml", f"{why}; written by rank 0"),
        Variable("NCCL_GRAPH_DUMP_FILE", f"{SHM_PATH}/nccl-graph.xml", f"{why}; written by rank 0"),
    )


def _ras_port(gang: Gang, _member: Member) -> tuple[Variable, ...]:
    """NCCL's own port would be taken by another job's ranks on the same node."""
    digest = sha256((gang.job.metadata.uid or "").encode()).digest()
    port = _FIRST_PORT + int.from_bytes(digest[:4]) % _PORTS
    return (Variable("NCCL_RAS_ADDR", f"localhost:{port}", "jobs share the node's network; each has a port"),)


def _is_verbs(gang: Gang, transport: Transport) -> bool:
    return gang.net is Net.VERBS and transport in gang.transports


_WIDE_GB_S = 12.5  # 100 Gbit/s
_CPUS_PER_RANK = 3  # its own, and two for the threads of its sockets, which move data in turns
_FIRST_PORT, _PORTS = 20_000, 10_000  # below those that Linux gives to connections

TABLE = (
    VariableRule(
        "the Pod has GPUs",
        lambda _gang: True,
        lambda _gang, _member: (Variable("NCCL_DEBUG", "WARN", "errors with their reason, nothing else"),),
        leaves=(
            "NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS",
            "NCCL_BUFFSIZE", "NCCL_NTHREADS", "NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE",
            "NCCL_CUMEM_ENABLE", "NCCL_NVB_DISABLE", "NCCL_PXN_DISABLE", "NCCL_DMABUF_ENABLE", "NCCL_NET_GDR_READ",
            "NCCL_NET_GDR_LEVEL", "NCCL_COLLNET_ENABLE", "NCCL_GRAPH_FILE", "NCCL_TOPO_FILE", "CUDA_VISIBLE_DEVICES",
        ),
    ),
    VariableRule(
        "the template has NCCL tell what it does",
        _wants_words,
        _words,
        leaves=("NCCL_DEBUG_FILE",),
    ),
    VariableRule(
        "all ranks are in one Pod",
        lambda gang: gang.net is Net.NONE,
        leaves=("NCCL_NET", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_NVLS_ENABLE"),
    ),
    VariableRule(
        "the Pods have one interface, as far as is known",
        lambda gang: (
            gang.is_spread
            and not gang.has_more_interfaces
            and not gang.on_host_network
            and gang.net is not Net.EFA
        ),
        leaves=("NCCL_SOCKET_IFNAME",),
    ),
    VariableRule(
        "the Pods have several interfaces",
        lambda gang: (
            gang.is_spread
            and gang.has_more_interfaces
            and not gang.on_host_network
            and gang.net not in (Net.EFA, Net.VENDOR)
        ),
        _interface,
        leaves=("NCCL_SOCKET_FAMILY",),
    ),
    VariableRule(
        "the Pods are on their nodes' network",  # their interfaces are unknown
        lambda gang: gang.on_host_network,
        _ras_port,
        leaves=("NCCL_SOCKET_IFNAME",),
    ),
    VariableRule(
        "every node has InfiniBand, and its NICs come into the Pods",
        lambda gang: _is_verbs(gang, Transport.INFINIBAND),
        _verbs,
        leaves=(
            "NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_QPS_PER_CONNECTION",
            "NCCL_IB_TIMEOUT",
        ),
    ),
    VariableRule(
        "every node has RoCE, and its NICs come into the Pods",
        lambda gang: _is_verbs(gang, Transport.ROCE),
        _verbs,
        leaves=("NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_TIMEOUT"),
    ),
    VariableRule(
        "the job names a traffic class, and the site has declared its marking",
        lambda gang: gang.is_marked,
        _marked,
    ),
    VariableRule(
        "RoCE, and the fabric spreads flows by hashing over a declared number of queue pairs",
        lambda gang: (
            _is_verbs(gang, Transport.ROCE) and gang.fabric.ecmp and gang.fabric.qps_per_connection is not None
        ),
        _queue_pairs,
        leaves=("NCCL_IB_SPLIT_DATA_ON_QPS",),
    ),
    VariableRule(
        "the fabric's rails are joined nowhere",  # NCCL does not find that out, and would send across them
        lambda gang: gang.is_spread and gang.fabric.rail_isolated and gang.net is not Net.VENDOR,
        lambda _gang, _member: (
            Variable("NCCL_CROSS_NIC", "0", "the fabric's rails are isolated from each other"),
        ),
        leaves=("NCCL_PXN_DISABLE",),
    ),
    VariableRule(
        "the fabric's rails are joined",
        lambda gang: gang.is_spread and not gang.fabric.rail_isolated,
        leaves=("NCCL_CROSS_NIC",),
    ),
    VariableRule(
        "nothing faster than sockets joins all nodes",
        lambda gang: gang.net.is_sockets,
        _sockets,
        leaves=("NCCL_IB_DISABLE",),
    ),
    VariableRule(
        "sockets alone over a network that the site declares wide, and CPUs for several of them",
        _has_wide_sockets,
        _more_sockets,
    ),
    VariableRule(
        "the nodes have NICs that closeknit does not hand out",  # the name of a net could keep NCCL from them
        lambda gang: gang.net is Net.OPEN,
        leaves=("NCCL_NET", "NCCL_IB_HCA"),
    ),
    VariableRule(
        "every node has EFA, and its adapters come into the Pods",
        lambda gang: gang.net is Net.EFA,
        _efa,
        leaves=(
            "FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "NCCL_IB_HCA", "NCCL_NVLS_ENABLE", "NCCL_NETDEVS_POLICY",
            "NCCL_PROTO", "NCCL_BUFFSIZE",
        ),
    ),
    VariableRule(
        "Google's GPUDirect machines, which the vendor's script sets up",
        lambda gang: gang.net is Net.VENDOR,
        leaves=("NCCL_NET", "NCCL_IB_HCA", "NCCL_CROSS_NIC", "NCCL_SOCKET_IFNAME"),
    ),
    VariableRule(
        "Azure ND machines",
        lambda gang: gang.net is Net.VERBS and gang.platforms == {Platform.AZURE_ND},
        _azure,
        leaves=("NCCL_IB_TC", "NCCL_IB_GID_INDEX", "NCCL_TOPO_FILE"),
    ),
    VariableRule(
        # NCCL sees that nodes share NVLink, tries it, and gives up with an error where a Pod has no IMEX channel.
        "nodes share NVLink, and their Pods have no IMEX channel",
        lambda gang: gang.is_spread and gang.shares_nvlink and not gang.uses_imex_channels,
        lambda _gang, _member: (
            Variable(MNNVL, "0", "nodes share NVLink, but Pods have no IMEX channel to use it"),
        ),
        leaves=("NCCL_CUMEM_ENABLE",),
    ),
    VariableRule(
        "all nodes are of one NVLink domain, and their Pods have IMEX channels",  # then NCCL uses it by itself
        lambda gang: gang.uses_imex_channels,
        leaves=(MNNVL, "NCCL_MNNVL_UUID", "NCCL_MNNVL_CLIQUE_ID", "NCCL_CUMEM_ENABLE"),
    ),
    VariableRule(
        "an attempt before ended because NVSwitch multicast could not be set up",
        lambda gang: Remedy.WITHOUT_NVLS in gang.remedies,
        lambda _gang, _member: (
            Variable(NVLS, "0", "an attempt before ended because NVSwitch multicast could not be set up"),
        ),
    ),
)  # fmt: skip


def variables(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """NCCL's variables in one member, in the order of the table; none where it has no GPUs.

    Those that change NCCL's plan are equal on every node; NCCL_IB_HCA alone may differ.
    """
    if not member.uuids:
        return ()
    return tuple(variable for row in rows(gang) for variable in row.sets(gang, member))


def rows(gang: Gang) -> tuple[VariableRule, ...]:
    """The rows that hold for a gang."""
    return tuple(row for row in TABLE if row.holds(gang))


def left_alone(gang: Gang) -> tuple[str, ...]:
    """Variables that people set for such a gang, that its NCCL reads, and that closeknit leaves to it, sorted."""
    taken = {variable.name for member in gang.workers[:1] for variable in variables(gang, member)}
    left = {name for row in rows(gang) for name in row.leaves if is_read(name, None, gang.nccl_version)}
    return tuple(sorted(left - taken))
