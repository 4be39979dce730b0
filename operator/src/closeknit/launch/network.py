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
    OPEN = "the nodes have NICs that closeknit does not hand out; NCCL takes what it finds in the Pods"
    NOT_WANTED = "network.rdma is Disabled"
    NO_NICS = "not every node has a NIC that NCCL could use"
    NO_COMMON_TRANSPORT = "the nodes' NICs have no transport in common"

    @property
    def is_sockets(self) -> bool:
        """Whether nothing faster than sockets can join all ranks."""
        return self in (Net.NOT_WANTED, Net.NO_NICS, Net.NO_COMMON_TRANSPORT)


def net(workers: Sequence[Member], policy: RdmaPolicy) -> Net:
    """The net of these workers."""
    if len(workers) < 2:
        return Net.NONE
    if all(worker.nics and worker.rdma_resource for worker in workers):
        return Net.VERBS
    if policy is RdmaPolicy.DISABLED:
        return Net.NOT_WANTED
    if not all(worker.usable for worker in workers):
        return Net.NO_NICS
    if not frozenset.intersection(*(worker.usable for worker in workers)):
        return Net.NO_COMMON_TRANSPORT
    return Net.OPEN


def share_nvlink(workers: Sequence[Member]) -> bool:
    """Whether two of these workers are on nodes of one multi-node NVLink domain."""
    domains = [worker.nvlink_domain for worker in workers if worker.nvlink_domain]
    return len(set(domains)) < len(domains)
