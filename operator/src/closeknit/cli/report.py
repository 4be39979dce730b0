"""What `closeknit plan -o json` prints."""

from collections.abc import Mapping
from typing import Any

import msgspec

from closeknit.cli.plan import Placed, Rank, Refused


def as_json(answer: Placed | Refused) -> str:
    """One JSON object: fits with placement, ranks and environment, or not with pending."""
    body: Mapping[str, Any]
    if isinstance(answer, Refused):
        pending = answer.pending
        reason = {"reason": pending.reason, "message": pending.message, "nearest": pending.nearest}
        body = {"fits": False, "pending": reason}
    else:
        body = {
            "fits": True,
            "placement": answer.placement.wire(),
            "ranks": [_rank(rank) for rank in answer.ranks],
            "environment": answer.environment,
        }
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()


def _rank(rank: Rank) -> dict[str, Any]:
    uuid = {"uuid": rank.uuid} if rank.uuid else {}  # what the machine does not tell is absent
    place = {"rank": rank.rank, "node": rank.node, "gpu": rank.gpu, **uuid}
    return place | {"coordinates": rank.coordinates._asdict()}
