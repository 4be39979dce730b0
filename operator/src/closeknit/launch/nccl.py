"""NCCL's variables: discovered fact -> setting. What no fact calls for is left to NCCL, whose defaults are measured."""

from closeknit.api.nodetopology import Transport
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.variable import Variable


def variables(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """NCCL's variables in one member; none where it has no GPUs. A gang on one node gets none for the network; NVLink
    needs no word.

    Those that change NCCL's plan are equal on every node; NCCL_IB_HCA alone may differ.
    """
    if not member.uuids:
        return ()
    always = (Variable("NCCL_DEBUG", "WARN", "errors with their reason, nothing else"),)
    if len(gang.workers) == 1:
        return always
    return (*always, *(_verbs(gang, member) if gang.uses_rdma else _sockets()), *_rails(gang))


def _verbs(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """NCCL over InfiniBand or RoCE; with the net named, NCCL fails rather than falls back to sockets in silence."""
    # A leading = makes the names exact: mlx5_1 alone would match mlx5_10, too.
    hcas = "=" + ",".join(member.nics)
    found: tuple[Variable, ...] = (
        Variable("NCCL_NET", "IB", "every node has RDMA NICs; fail rather than fall back to sockets"),
        Variable("NCCL_IB_HCA", hcas, "the NICs nearest to this node's GPUs; Pods see the others, too"),
    )
    fabric = gang.fabric
    if fabric.ecmp and fabric.qps_per_connection and Transport.ROCE in gang.transports:
        queue_pairs = str(fabric.qps_per_connection)
        found += (Variable("NCCL_IB_QPS_PER_CONNECTION", queue_pairs, "the fabric spreads flows by hashing"),)
    return found


def _sockets() -> tuple[Variable, ...]:
    return (Variable("NCCL_NET", "Socket", "not every node offers RDMA to this gang"),)


def _rails(gang: Gang) -> tuple[Variable, ...]:
    """NCCL does not find out that rails are joined nowhere, and would send across them."""
    if not gang.fabric.rail_isolated:
        return ()
    return (Variable("NCCL_CROSS_NIC", "0", "the fabric's rails are isolated from each other"),)
