"""What `closeknit plan -o json` prints."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from closeknit.cli.plan.plan_decision import Placed, PlanRefused, Rank
from closeknit.placement.fragmentation import Fragmentation
from closeknit.placement.suggestions.changes import Alternative


def as_json(answer: Placed | PlanRefused, supposed: str = "", *, is_relaxed: bool = False) -> str:
    """One JSON object: fits with placement, ranks and environment, or not with pending. It then also says, if
    `is_relaxed`, where it would go with each of the nearest changes. `supposed` is what was taken for granted.

    Of ASCII alone, for it may be read on a terminal, and names in it come from files.
    """
    body: Mapping[str, Any]
    if isinstance(answer, PlanRefused):
        pending = answer.pending
        reason = {"reason": pending.reason, "message": pending.message, "nearest": pending.nearest}
        reason |= {} if pending.estimated_start is None else {"estimatedStart": pending.estimated_start}
        reason |= {"later": list(answer.later)} if answer.later else {}
        relaxed = {"relaxed": [_relaxed(change) for change in answer.changes]} if is_relaxed else {}
        body = {"fits": False, "pending": reason, "free": scattered(answer.free), **relaxed, **_booked(answer)}
    else:
        body = {
            "fits": True,
            "placement": answer.placement.wire(),
            "ranks": [_rank(rank) for rank in answer.ranks],
            "environment": answer.environment,
            **({} if answer.nvls_gb_s is None else {"nvlsBusBandwidthGBps": round(answer.nvls_gb_s, 1)}),
            **({} if answer.waits_first is None else {"waitsFirst": answer.waits_first}),
            **({} if answer.over_tcp is None else {"overTCP": answer.over_tcp}),
            **({} if answer.lacks is None else {"lacks": answer.lacks.told(is_booked=answer.booked is not None)}),
            **({"warnings": answer.warnings} if answer.warnings else {}),
            **_booked(answer),
            **({} if answer.unknown_preference is None else {"unknownPreference": answer.unknown_preference}),
            **({"notChecked": answer.unchecked} if answer.unchecked else {}),
        }
    return json.dumps(msgspec.to_builtins({**body, **({"supposed": supposed} if supposed else {})}), indent=2)


def _relaxed(change: Alternative) -> dict[str, Any]:
    placement = change.placement
    predicted = placement.predicted_bus_bandwidth_gb_s
    return {
        "change": change.what,
        "nodes": [{"name": share.node, "gpus": list(share.gpus)} for share in placement.shares],
        "levels": dict(placement.levels),
        "predictedBusBandwidthGBps": None if predicted is None else round(predicted, 1),
    }


def scattered(free: Fragmentation) -> dict[str, Any]:
    """What is free and how much of it together, as programs read it."""
    return {
        "freeGPUs": free.free_gpus,
        "ofPartlyUsedNodes": free.broken_gpus,
        "largestGang": free.largest_gang,
        "largestInside": dict(free.largest_inside),
        "islands": {str(size): count for size, count in free.islands.items()},
    }


def _booked(answer: Placed | PlanRefused) -> dict[str, Any]:
    return {} if answer.booked is None else {"booked": answer.booked.wire()}


def _rank(rank: Rank) -> dict[str, Any]:
    uuid = {"uuid": rank.uuid} if rank.uuid else {}  # what the machine does not tell is absent
    place = {"rank": rank.rank, "node": rank.node, "gpu": rank.gpu, **uuid}
    return place | {"coordinates": rank.coordinates._asdict()}
