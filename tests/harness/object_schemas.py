"""JSON Schemas of kinds that an API server knows, as kubeconform reads them: from the server's own OpenAPI.

Those that kubeconform fetches by default are made likewise, and lack the cluster's CustomResourceDefinitions.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOCATION = "{{.ResourceKind}}{{.KindSuffix}}.json"  # deployment-apps-v1.json, service-v1.json
_TEXT_OR_NUMBER = {"oneOf": [{"type": "string"}, {"type": "number"}]}


def write(openapi: dict[str, Any], kinds: set[str], folder: Path) -> None:
    """One file for each of these kinds, which refuses fields that the API does not know. `openapi` is /openapi/v2."""
    definitions = {name: strict(each) for name, each in openapi["definitions"].items()}
    for name, each in openapi["definitions"].items():
        for kind in each.get("x-kubernetes-group-version-kind", []):
            if kind["kind"] in kinds:
                names = (kind["kind"].lower(), kind["group"].partition(".")[0], kind["version"])
                used = {other: definitions[other] for other in _reached(name, definitions)}
                schema = {"$ref": f"#/definitions/{name}", "definitions": used}
                (folder / f"{'-'.join(filter(None, names))}.json").write_text(json.dumps(schema))


def strict(schema: Any) -> Any:
    """The schema with no field but those that it names."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return _TEXT_OR_NUMBER
    kept = {
        key: {name: strict(field) for name, field in each.items()} if key == "properties" else strict(each)
        for key, each in schema.items()
        if key not in ("format", "default")
    }
    is_closed = isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields")
    return {"additionalProperties": False, **kept} if is_closed and schema.get("type") == "object" else kept


def _reached(name: str, definitions: dict[str, Any]) -> set[str]:
    """The names of all definitions that one uses, its own among them."""
    found, ahead = {name}, [name]
    while ahead:
        for other in _references(definitions[ahead.pop()]):
            if other not in found:
                found.add(other)
                ahead.append(other)
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for each in schema.values():
            yield from _references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)
