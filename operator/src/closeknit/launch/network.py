"""What the ranks of different nodes talk over: one answer for the whole gang, for NCCL has all ranks speak one net."""

from collections.abc import Sequence
from enum import Enum

from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob import RdmaPolicy
from closeknit.launch.member import Member

# What NCCL can use: InfiniBand and RoCE by itself, EFA by a plugin in the image. It takes an iWARP port for RoCE and
# then fails on it.
NCCL_TRANSPORTS = (Transport.INFINIBAND, Transport.ROCE, Transport.EFA)


class Net(Enum):
    """The net of a gang, and why it is this one."""

    NONE = "all ranks are on one node"
    VERBS = "every node has RDMA NICs; fail rather than fall back to sockets"
    EFA = "every node has EFA adapters; fail rather than fall back to sockets"
    VENDOR = "the vendor's script in the container sets up the net of these machines"
    OPEN = "the nodes have NICs that closeknit does not hand out; NCCL takes what it finds in the Pods"
    NOT_WANTED = "network.rdma is Disabled"
    NO_NICS = "not every node has a NIC that NCCL could use"
    NO_COMMON_TRANSPORT = "the nodes' NICs have no transport in common"
    NO_COMMON_EXPOSURE = "the nodes' NICs come into Pods in different ways"

    @property
    def is_sockets(self) -> bool:
        """Whether nothing faster than sockets can join all ranks."""
        return self in (Net.NOT_WANTED, Net.NO_NICS, Net.NO_COMMON_TRANSPORT, Net.NO_COMMON_EXPOSURE)

    @property
    def is_rdma(self) -> bool:
        """Whether the Pods are given NICs that register memory."""
        return self in (Net.VERBS, Net.EFA)


def net(workers: Sequence[Member], policy: RdmaPolicy) -> Net:
    """The net of these workers."""
    if len(workers) < 2:
        return Net.NONE
    if policy is RdmaPolicy.DISABLED:
        return Net.NOT_WANTED
    platforms = {worker.platform for worker in workers}
    if all(platform is not None and platform.has_own_script for platform in platforms):
        return Net.VENDOR
    if all(worker.nics and worker.rdma_resource for worker in workers):
        return Net.EFA if workers[0].transport is Transport.EFA else Net.VERBS
    if not all(worker.usable for worker in workers):
        return Net.NO_NICS
    if not frozenset.intersection(*(worker.usable for worker in workers)):
        return Net.NO_COMMON_TRANSPORT
    exposures = {worker.offered for worker in workers}
    return Net.OPEN if len(exposures) == 1 or None in exposures else Net.NO_COMMON_EXPOSURE


def share_nvlink(workers: Sequence[Member]) -> bool:
    """Whether two of these workers are on nodes of one multi-node NVLink domain."""
    found = (worker.clique_told[1] if worker.clique_told else worker.nvlink_domain for worker in workers)
    domains = [domain for domain in found if domain]  # NCCL asks NVML, whatever a label says
    return len(set(domains)) < len(domains)
