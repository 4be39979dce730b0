"""NCCL's variables: discovered fact -> setting. What no fact calls for is left to NCCL, whose defaults are measured."""

from closeknit.api.nodetopology import Transport
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.network import Net
from closeknit.launch.variable import Variable


def variables(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """NCCL's variables in one member; none where it has no GPUs. A gang on one node gets none for the network; NVLink
    needs no word.

    Those that change NCCL's plan are equal on every node; NCCL_IB_HCA alone may differ.
    """
    if not member.uuids:
        return ()
    always = (Variable("NCCL_DEBUG", "WARN", "errors with their reason, nothing else"),)
    if gang.net is Net.NONE:
        return always
    return (*always, *_net(gang, member), *_nvlink(gang), *_rails(gang))


def _net(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """A net is named where it is known. Where NICs may be in the Pods that closeknit has not put there, the name of a
    net could keep NCCL from them."""
    if gang.net is Net.VERBS:
        return _verbs(gang, member)
    return (Variable("NCCL_NET", "Socket", gang.net.value),) if gang.net.is_sockets else ()


def _verbs(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """NCCL over InfiniBand or RoCE; with the net named, NCCL fails rather than falls back to sockets in silence."""
    # A leading = makes the names exact: mlx5_1 alone would match mlx5_10, too.
    hcas = "=" + ",".join(member.nics)
    found: tuple[Variable, ...] = (
        Variable("NCCL_NET", "IB", Net.VERBS.value),
        Variable("NCCL_IB_HCA", hcas, "the NICs nearest to this node's GPUs; Pods see the others, too"),
    )
    fabric = gang.fabric
    if fabric.ecmp and fabric.qps_per_connection and Transport.ROCE in gang.transports:
        queue_pairs = str(fabric.qps_per_connection)
        found += (Variable("NCCL_IB_QPS_PER_CONNECTION", queue_pairs, "the fabric spreads flows by hashing"),)
    return found


def _nvlink(gang: Gang) -> tuple[Variable, ...]:
    """NCCL sees that nodes share NVLink, tries it, and gives up with an error where a Pod has no IMEX channel, which
    only a claim for a ComputeDomain brings."""
    if not gang.shares_nvlink:
        return ()
    return (Variable("NCCL_MNNVL_ENABLE", "0", "nodes share NVLink, but Pods have no IMEX channel to use it"),)


def _rails(gang: Gang) -> tuple[Variable, ...]:
    """NCCL does not find out that rails are joined nowhere, and would send across them."""
    if not gang.fabric.rail_isolated:
        return ()
    return (Variable("NCCL_CROSS_NIC", "0", "the fabric's rails are isolated from each other"),)
