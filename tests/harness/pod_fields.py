"""What a PodSpec's fields are called and what they hold, from the models of the Kubernetes client: python -m
harness.pod_fields writes operator/src/closeknit/cli/input/pod_fields.json."""

import json
import re
from pathlib import Path
from typing import Any

from kubernetes.aio.client import models

FILE = Path(__file__).parents[2] / "operator/src/closeknit/cli/input/pod_fields.json"
# The client calls a quantity a text; an API server takes numbers, too.
_QUANTITIES = {"limits", "requests", "overhead", "sizeLimit", "divisor"}
_OURS = re.compile(r"\b(?:V\d+|Core)([A-Z]\w*)")


def text() -> str:
    """Type -> field -> what it holds (`str`, `int`, `List[Container]`, …), with * where it is required."""
    found: dict[str, dict[str, str]] = {}
    wanted = ["V1PodSpec"]
    while wanted:
        name = wanted.pop()
        if _short(name) in found:
            continue
        model: Any = getattr(models, name)
        needed = {field.serialization_alias or key for key, field in model.model_fields.items() if field.is_required()}
        fields = {}
        for attribute, kind in sorted(model.openapi_types.items(), key=lambda entry: model.attribute_map[entry[0]]):
            wanted += [each for each in re.findall(r"\w+", kind) if hasattr(models, each)]
            star = "*" if model.attribute_map[attribute] in needed else ""
            field = model.attribute_map[attribute]
            spelt = re.sub(r"\w+", lambda word: _short(word[0]), kind)
            fields[field] = (re.sub(r"str(?=\]?$)", "quantity", spelt) if field in _QUANTITIES else spelt) + star
        found[_short(name)] = fields
    rows = [f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in sorted(found.items())]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _short(name: str) -> str:
    match = _OURS.fullmatch(name)
    return match[1] if match else name


if __name__ == "__main__":
    FILE.write_text(text())
