"""What bandwidth a plan will reach, and what limits it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from closeknit.api.nodetopology import Transport
from closeknit.placement.allreduce.bandwidth import NicAccess
from closeknit.placement.allreduce.paths import PathType
from closeknit.placement.gpusets.gpu_sets import GpuSets

_UNDESCRIBED = "network between nodes is not described: set fabric.levelBandwidthGBps in ClusterTopology default"

ONE_GPU = "one GPU has nothing to exchange"
UNSEARCHED = "the cluster's machines join their GPUs in more ways than are searched"


class Prediction(NamedTuple):
    """Bus bandwidth of an all-reduce of 1 GiB over the whole gang; None where a part of its way is unknown."""

    gb_s: float | None
    limited_by: str
    at_least_gb_s: float | None = None
    """Where it is unknown: what it cannot be below, if that is known."""


class LevelCap(NamedTuple):
    """The slowest described network among those that a gang crosses."""

    gb_s: float
    level: str


def level_cap(
    levels: Sequence[str], level_bandwidth_gb_s: Mapping[str, float], counts: Sequence[int]
) -> LevelCap | None:
    """The slowest level that a gang with so many domains of each crosses; None where none of them is described."""
    crossed = [
        LevelCap(level_bandwidth_gb_s[level], level)
        for level, count in zip(levels, counts, strict=True)
        if count > 1 and level in level_bandwidth_gb_s
    ]
    return min(crossed, key=lambda cap: cap.gb_s, default=None)


def level_floor(
    levels: Sequence[str], level_bandwidth_gb_s: Mapping[str, float], counts: Sequence[int]
) -> float | None:
    """What the network of a gang that crosses no described level cannot be below; None where none is described.

    The network inside a domain is no slower than that between domains of its level.
    """
    outside = [
        level_bandwidth_gb_s[level]
        for level, count in zip(levels, counts, strict=True)
        if count == 1 and level in level_bandwidth_gb_s
    ]
    return outside[-1] if outside else None


def undescribed(levels: Sequence[str], level_bandwidth_gb_s: Mapping[str, float], counts: Sequence[int]) -> str:
    """Why nothing is known of the network that such a gang crosses, where it is described for other levels alone."""
    crossed = next((level for level, count in zip(levels, counts, strict=True) if count > 1), None)
    if not level_bandwidth_gb_s or crossed is None:
        return _UNDESCRIBED
    return (
        f"network between domains of level {crossed} is not described: add {crossed} to fabric.levelBandwidthGBps in "
        "ClusterTopology default"
    )


def predict_over_nvlink(parts: Sequence[tuple[str, GpuSets, int, NicAccess]]) -> Prediction:
    """The same for a gang whose nodes NVLink joins, all in one NVLink domain: its switches are one for NCCL, and a ring
    over them is as fast as its slowest GPU's links."""
    limits: list[tuple[float, str]] = []
    for node, sets, mask, _ in parts:
        rings = sets.bandwidth(mask, alone=False)
        if rings is None:
            return Prediction(None, f"nothing is predicted for {node}: {UNSEARCHED}")
        if rings.worst is None:
            return Prediction(None, f"{node} has one GPU, without a ring that tells how fast its NVLinks are")
        if not rings.known:
            return Prediction(None, f"the compute capability of GPUs of {node} is unknown")
        limits.append((rings.order_gb_s, f"NVLinks of {node}"))
    return Prediction(*min(limits, key=lambda limit: limit[0]))


def predict(
    parts: Sequence[tuple[str, GpuSets, int, NicAccess]],
    transport: Transport | None,
    cap: LevelCap | None,
    floor_gb_s: float | None,
    unknown: str = _UNDESCRIBED,
) -> Prediction:
    """The prediction for (node, its sets, its GPUs as a mask, the NICs that it can get): the slowest ring, NIC
    or level, whichever is least.

    `cap`, `floor_gb_s` and `unknown` are what `level_cap`, `level_floor` and `undescribed` say of the domains that the
    parts span. Rings of a gang on one
    node are calibrated; over several nodes they have more steps, and what they miss is less than the network takes.
    """
    limits: list[tuple[float, str]] = []
    if len(parts) == 1 and parts[0][2].bit_count() == 1:
        return Prediction(None, ONE_GPU)
    different: dict[tuple[GpuSets, int, NicAccess], str] = {}  # equal shares limit alike; the first node is named
    for node, sets, mask, access in parts:
        different.setdefault((sets, mask, access), node)
    for (sets, mask, _), node in different.items():
        rings = sets.bandwidth(mask, alone=len(parts) == 1)
        if rings is None:
            return Prediction(None, f"nothing is predicted for {node}: {UNSEARCHED}")
        if not rings.known:
            return Prediction(None, f"the compute capability of GPUs of {node} is unknown")
        if rings.worst is not None:
            kind = "NVLink" if rings.worst <= PathType.NVB else f"PCIe ({rings.worst.name})"
            inside = sets.facts.reached_gb_s(mask) if len(parts) == 1 else rings.order_gb_s
            limits.append((inside, f"{kind} ring inside {node}"))
    if len(parts) > 1:
        nics = [
            (sets.nics(mask, transport, access).gb_s if transport else None, f"NICs of {node}")
            for (sets, mask, access), node in different.items()
        ]
        known = [(gb_s, words) for gb_s, words in nics if gb_s is not None]
        if len(known) < len(nics) and cap is None:
            sure = None if floor_gb_s is None else min([floor_gb_s, *(gb_s for gb_s, _ in limits + known)])
            return Prediction(None, unknown, sure)
        limits += known
        if cap is not None:
            limits.append((cap.gb_s, f"network between domains of level {cap.level}"))
    return Prediction(*min(limits, key=lambda limit: limit[0]))
