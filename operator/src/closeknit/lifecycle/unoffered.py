"""RDMA NICs that a gang's nodes have and closeknit does not hand to its Pods: what the job is told of them."""

from collections import Counter

from closeknit.api.nodetopology import PortState
from closeknit.cluster.booking import names
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node import NodeView
from closeknit.launch.gang import Gang
from closeknit.launch.network import NCCL_TRANSPORTS, Net
from closeknit.launch.template import trainer


def unoffered(gang: Gang, cluster: Cluster) -> str | None:
    """Which NICs those are, why the Pods go without, and what to do; None where none is missing."""
    if gang.net is not Net.OPEN:
        return None
    lacking: dict[str, list[str]] = {}
    for worker in gang.workers:
        view = cluster.nodes[worker.node]
        if why := _lacks(view):
            lacking.setdefault(f"{_nics(view)}, which {why}", []).append(worker.node)
    if not lacking:
        return None
    found = "; ".join(f"{names(nodes)}: {words}" for words, nodes in lacking.items())
    if asked := _asked(gang):
        return f"RDMA NICs come into its Pods only by {', '.join(asked)}, which its template asks for: {found}"
    return (
        f"its Pods get no RDMA NIC, so that NCCL may fall back to TCP: {found}; have a device plugin offer them as "
        "rdma/..., ask for them in the template by the name that they have, or set network.rdma: Disabled"
    )


def _lacks(view: NodeView) -> str | None:
    if view.rdma is None:
        return "no rdma/ resource offers"
    return f"have no share left in {view.rdma.resource}" if view.rdma.free < 1 else None


def _nics(view: NodeView) -> str:
    """`8 EFA NICs`, or `4 InfiniBand and 2 RoCE NICs`, of one node."""
    nics = view.machine.nics if view.machine else ()
    found = Counter(nic.transport for nic in nics if nic.state is PortState.ACTIVE)
    kinds = [f"{found[transport]} {transport}" for transport in NCCL_TRANSPORTS if found[transport]]
    return f"{' and '.join(kinds)} NICs"


def _asked(gang: Gang) -> list[str]:
    """Extended resources that the user's container asks for: one of them may be the NICs'."""
    resources = trainer(gang.job.spec.template.spec).get("resources") or {}
    asked = {name for field in ("limits", "requests") for name in resources.get(field) or {}}
    return sorted(name for name in asked if "/" in name)
