"""Objects of our own kinds, read as strictly as an API server with our CRDs reads them."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails, to_json

from closeknit.api.objects import ObjectMeta
from closeknit.api.text.nesting import is_deeper
from closeknit.api.text.quantity import DURATION_PATTERN, QUANTITY_PATTERN
from closeknit.api.trainingjob import MIG_PROFILE
from closeknit.api.wire import FieldError, Wire
from closeknit.cli.input.bad_input import BadInput
from closeknit.cli.input.bounds import TOO_DEEP
from closeknit.cli.input.manifest import Manifest, Way

Ours = TypeVar("Ours", bound=Wire)

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = rf"{_LABEL}([.]{_LABEL})*"
_TOP_LEVEL = ("apiVersion", "kind", "metadata", "spec", "status")
_SHOWN_LENGTH = 60  # of a text that is not what it should be
# Pattern of a text of our kinds -> texts that match it, by ` or `: what people read in its place.
EXAMPLES: Mapping[str, str] = {
    DURATION_PATTERN: "30s or 10m or 1h30m",
    QUANTITY_PATTERN: "80Gi or 10G",
    MIG_PROFILE: "1g.18gb",
    r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$": "0000:18:00.0",
    r"^[0-9]+\.[0-9]+$": "9.0",
    r"^[0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,3}$": "2.32.3",
    "^(True|False|Unknown)$": "True or False or Unknown",
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": "rack",
    rf"^{_NAME}/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$": "example.com/rdma_nics",
    rf"^{_LABEL}/{_NAME}$": "default/sriov-net",
    # of a status, which programs write
    r"^[-.a-z0-9]*:[-.a-z0-9]*(,[-.a-z0-9]*)*$": "gpu-:01,02",
    r"^[-.a-z0-9]*$": "gpu-01",
    r"^[0-9]{1,18}([*][0-9]{1,5})?(,[0-9]{1,18}([*][0-9]{1,5})?)*$": "8*4,2",
    r"^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$": "0-3,7",
}


def read(manifest: Manifest, model: type[Ours]) -> Ours:
    """The object of a manifest. Its metadata is the API server's matter, and may have more fields than we know.

    Raises BadInput at the first mistake.
    """
    body = manifest.body
    if is_deeper(to_json(body)):  # as the operator refuses it
        raise manifest.bad((), TOO_DEEP)
    for key in body:
        if key not in _TOP_LEVEL:
            raise manifest.bad((key,), f"unknown field; allowed: {', '.join(_TOP_LEVEL)}")
    above: Way = ("metadata",)
    part: type[Wire] = ObjectMeta
    try:
        # As in an API server, null stands for absent.
        parts: dict[str, Any] = {"metadata": part.parse({k: v for k, v in body["metadata"].items() if v is not None})}
        for name in ("spec", "status"):
            if body.get(name) is None:
                continue
            above, part = (name,), _wire_inside(model.model_fields[name].annotation) or model
            parts[name] = part.parse_strictly(body[name])
        above, part = (), model
        return model.model_validate(parts)
    except ValidationError as error:
        raise _refusal(manifest, error, part, above) from None


def steps(path: str) -> Way:
    """The way that a path such as pcie.levels[2] stands for."""
    words: list[tuple[str, str]] = re.findall(r"\[(\d+)\]|([^.\[\]]+)", path)
    return tuple(int(index) if index else name for index, name in words)


def _refusal(manifest: Manifest, error: ValidationError, model: type[Wire], above: Way) -> BadInput:
    """The first mistake that pydantic found, in our words."""
    fault = error.errors(include_url=False, include_input=True)[0]
    below: Way = fault["loc"]
    field = (*above, *below)
    rule = fault.get("ctx", {}).get("error")
    if isinstance(rule, FieldError):
        return manifest.bad((*field, *steps(rule.field)), rule.message)
    if fault["type"] == "extra_forbidden":
        return manifest.bad(field, f"unknown field; allowed: {', '.join(_names_at(model, below[:-1]))}")
    if fault["type"] == "missing":
        return manifest.bad(field, "is required")
    return manifest.bad(field, f"{shown(fault['input'])}; {expected(fault)}")


def expected(fault: ErrorDetails) -> str:
    """What pydantic expects, without its name for what it found; of a pattern an example."""
    example = EXAMPLES.get(fault.get("ctx", {}).get("pattern", ""))
    return f"write it like {example}" if example else re.sub(r"^\w+ (?=should )", "", fault["msg"])


def shown(value: object) -> str:
    """What stands in a file where something else should."""
    match value:
        case None:
            return "is null"
        case dict():
            return "is an object"
        case list():
            return "is a list"
        case _:
            text = repr(value)
            return f"is {text}" if len(text) <= _SHOWN_LENGTH else f"is {text[: _SHOWN_LENGTH - 3]}..."


def _names_at(model: type[Wire], way: Way) -> list[str]:
    """The fields that an object may have there, as on the wire."""
    for step in way:
        field = next((field for name, field in model.model_fields.items() if step in (name, field.alias)), None)
        if field is not None:  # else an index, or a key of the user's own
            model = _wire_inside(field.annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _wire_inside(annotation: Any) -> type[Wire] | None:
    """The wire type that a field holds: itself, packed, optional, or in a list."""
    annotation = getattr(annotation, "holds", annotation)
    if isinstance(annotation, type) and issubclass(annotation, Wire):
        return annotation
    return next(filter(None, map(_wire_inside, get_args(annotation))), None)
