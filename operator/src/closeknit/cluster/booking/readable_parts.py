"""What can be read of a status that cannot be read as a whole: by a newer version, or edited by force.

Invariant: in doubt the job holds its GPUs. What says that it holds less than it was given is dropped with the first
share that cannot be read, for it counts positions.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import ValidationError

from closeknit.api.trainingjob_status import Binding, TrainingJobStatus

# What says that a job holds GPUs, and since which attempt.
_KEPT = ("attempt", "attempts", "conditions", "epoch", "placement")
# A share without one of these still names its node and GPUs. BestEffort: which GPUs its Pod has is its agent's word.
_OF_SHARE: dict[str, Any] = {"binding": Binding.BEST_EFFORT.value, "ranks": "", "topologyGeneration": 0}
_OF_PLACEMENT: dict[str, Any] = {"nodeCount": 0}  # which no decision reads
# A gang in columns has what its shares have in common in `kinds`.
_SHARES = {("placement", "nodes"), ("placement", "spares"), ("placement", "packed", "kinds")}
_BY_POSITION = ("succeeded", "lost", "replaced")
_ROUNDS = 8  # each drops all that is found wrong; what is left may then lack a field

Location = tuple[str | int, ...]


def readable_parts(document: bytes) -> TrainingJobStatus | None:
    """The status without what cannot be read of it; None where nothing of it can be."""
    try:
        found = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    status = {name: found[name] for name in _KEPT if name in found}
    for _ in range(_ROUNDS):
        try:
            return TrainingJobStatus.model_validate_json(msgspec.json.encode(status))
        except ValidationError as error:
            faults = {
                (tuple(each["loc"]), each["type"] == "missing")
                for each in error.errors(include_url=False, include_input=False)
            }
        left = [fault for fault in faults if not _filled(status, fault[0])]
        wrong = {location[:-1] if is_missing else location for location, is_missing in left}
        for location in sorted(wrong, key=_from_the_end, reverse=True):
            _drop(status, location)
    return None


def _from_the_end(location: Location) -> list[tuple[int, str]]:
    """Entries of a list come in their order, so that each keeps its index until it is its turn."""
    return [(step, "") if isinstance(step, int) else (-1, step) for step in location]


def _filled(status: dict[str, Any], location: Location) -> bool:
    """Whether what is wrong there, or missing, could be filled in."""
    *path, last = location
    is_share = tuple(path[:-1]) in _SHARES and isinstance(path[-1], int)
    instead = _OF_SHARE if is_share else _OF_PLACEMENT if path == ["placement"] else {}
    holder = _at(status, path)
    if not isinstance(holder, dict) or last not in instead:
        return False
    holder[str(last)] = instead[str(last)]
    return True


def _drop(status: dict[str, Any], location: Location) -> None:
    if not location:
        return
    if location[:1] == ("attempts",) and location[2:] == ("inPlace",):  # without it the end would be one for good
        location = location[:2]
    *path, last = location
    if location == ("attempt",):  # the first one is over by what is told of ends, and which one it is, is not known
        status.pop("attempts", None)
    holder = _at(status, path)
    if isinstance(holder, dict):
        holder.pop(str(last), None)
    elif isinstance(holder, list) and isinstance(last, int) and last < len(holder):
        del holder[last]
        for name in _BY_POSITION if path == ["placement", "nodes"] else ():
            status["placement"].pop(name, None)


def _at(found: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        if isinstance(found, dict):
            found = found.get(str(step))
        elif isinstance(found, list) and isinstance(step, int) and step < len(found):
            found = found[step]
        else:
            return None
    return found
