"""Server-side apply, as far as this project uses it: maps are merged field by field, lists are taken as a whole."""

import copy
from typing import Any

from closeknit.kube.api import JsonObject
from closeknit.kube.errors import Conflict

Path = tuple[str, ...]


def merged(
    live: JsonObject, wanted: JsonObject, *, before: JsonObject, others: list[JsonObject], force: bool
) -> JsonObject:
    """`live` with all of `wanted`, and without what only this manager wanted `before`.

    `others` is what the other managers applied. Without `force`, a field that has another value and is not this
    manager's raises Conflict.
    """
    result = copy.deepcopy(live)
    new, old = _leaves(wanted), _leaves(before)
    kept = {path for other in others for path in _leaves(other)}
    if not force:
        taken = [".".join(path) for path, value in new.items() if path not in old and _differs(live, path, value)]
        if taken:
            raise Conflict(f"Apply failed with {len(taken)} conflicts: {', '.join(taken)}", code=409, reason="Conflict")
    for path in old.keys() - new.keys() - kept:
        _remove(result, path)
    for path, value in new.items():
        _put(result, path, copy.deepcopy(value))
    return result


def _leaves(body: JsonObject, at: Path = ()) -> dict[Path, Any]:
    leaves: dict[Path, Any] = {}
    for key, value in body.items():
        leaves |= _leaves(value, (*at, key)) if isinstance(value, dict) and value else {(*at, key): value}
    return leaves


def _differs(live: Any, path: Path, value: Any) -> bool:
    for part in path:
        if not isinstance(live, dict) or part not in live:
            return False
        live = live[part]
    return bool(live != value)


def _put(target: JsonObject, path: Path, value: Any) -> None:
    for part in path[:-1]:
        inner = target.get(part)
        if not isinstance(inner, dict):
            inner = target[part] = {}
        target = inner
    target[path[-1]] = value


def _remove(target: JsonObject, path: Path) -> None:
    """Removes a leaf, and the maps that are empty without it."""
    inner = target.get(path[0])
    if len(path) > 1 and isinstance(inner, dict):
        _remove(inner, path[1:])
        if inner:
            return
    target.pop(path[0], None)
