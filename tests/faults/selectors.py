"""Field and label selectors, as far as this project writes them: `a=b`, `a!=b`, `key`, `!key`, joined by commas."""

from collections.abc import Callable
from typing import Any

from closeknit.kube.api import JsonObject
from closeknit.kube.errors import Invalid

Matches = Callable[[JsonObject], bool]


def selector(field_selector: str | None, label_selector: str | None, fields: tuple[str, ...]) -> Matches:
    """Whether an object is selected. Raises Invalid for a field that this kind cannot be selected by."""
    terms = [_field_term(term, fields) for term in _split(field_selector)]
    terms += [_label_term(term) for term in _split(label_selector)]
    return lambda obj: all(term(obj) for term in terms)


def _split(text: str | None) -> list[str]:
    return [term for term in (text or "").split(",") if term]


def _field_term(term: str, fields: tuple[str, ...]) -> Matches:
    path, wanted, equal = _comparison(term)
    if path not in ("metadata.name", "metadata.namespace", *fields):
        raise Invalid(f"field label not supported: {path}", code=400, reason="BadRequest")

    def value(obj: Any) -> str:
        for part in path.split("."):
            obj = obj.get(part) or {}
        return obj or ""

    return lambda obj: (value(obj) == wanted) is equal


def _label_term(term: str) -> Matches:
    def labels(obj: JsonObject) -> dict[str, str]:
        return obj["metadata"].get("labels") or {}

    if "=" in term:
        key, wanted, equal = _comparison(term)
        return lambda obj: (labels(obj).get(key) == wanted) is equal
    return lambda obj: (term.lstrip("!") in labels(obj)) is not term.startswith("!")


def _comparison(term: str) -> tuple[str, str, bool]:
    """Key, value, and whether they shall be equal."""
    left, _, right = term.partition("=")
    return left.removesuffix("!"), right.removeprefix("="), not left.endswith("!")
