"""XIDs: which of them speak of the GPU, how much so, and how they are written as a reason. Pure."""

import re

# Mistakes of programs and of their users, by the list that NVIDIA's device plugin ignores: 13 and 31 bad memory access,
# 43 reset by its user, 45 preempted, 68 video decoder, 109 context switch timeout.
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
# By NVIDIA's catalogue these ask for a reset when it is convenient: a row was remapped, many corrected errors, an error
# that only its own program has felt. Its device plugin takes the GPU away for them, too; here it counts as Degraded.
MILD_XIDS = frozenset({63, 92, 94})

_REASON = re.compile(r"XID([1-9]\d{0,5})", re.ASCII)


def reason(xid: int) -> str:
    """The XID as a reason of a GPU's status."""
    return f"XID{xid}"


def xid_of(reason: str) -> int | None:
    """The XID that a reason is; None for any other one, and for XIDs of programs."""
    found = _REASON.fullmatch(reason)
    xid = int(found[1]) if found else None
    return None if xid in APPLICATION_XIDS else xid
