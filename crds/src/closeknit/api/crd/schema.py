"""Structural schemas of Kubernetes, from pydantic models.

An API server wants less than JSON schema offers (no $ref, no anyOf with null) and more than pydantic promises (a bound
on every string, list and map, without which the cost of a CEL rule cannot be estimated). What has no safe translation
raises UnsupportedSchemaError; nothing is guessed.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final, get_args

from closeknit.api.wire import Condition, Wire

# Carried over as they are; `title` and `default` are not: defaults live in the programs, so that a stored object keeps
# what its author wrote and a better default reaches it.
_KEPT: Final = (
    "enum",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "nullable",
)
_READ: Final = {"type", "items", "properties", "required", "additionalProperties", "exclusiveMaximum", "$defs"}
_DROPPED: Final = {"title", "default", "description"}
_SCALARS: Final = {"string", "integer", "number", "boolean"}

# The only shape of an opaque object that CEL's == compares whole (see rules.py): spec is required and must NOT be
# declared, metadata must be, and there is no room for a third key.
_POD_TEMPLATE: Final = "PodTemplate"

Schema = dict[str, Any]


class UnsupportedSchemaError(Exception):
    """A model says something that a structural schema cannot hold; the message names the field."""


def structural_schema(model: type[Wire]) -> Schema:
    """The structural schema of one model: references inlined, one-line descriptions, everything bounded."""
    document = model.model_json_schema(by_alias=True, mode="validation")
    models = {each.__name__: each for each in _models(model)}
    definitions = {name: _described(models.get(name), node) for name, node in document.get("$defs", {}).items()}
    return _structural(_described(model, document), definitions, model.__name__)


def _models(annotation: Any) -> set[type[Wire]]:
    """All models that a type is made of; a packed one is what it holds."""
    annotation = getattr(annotation, "holds", annotation)
    if isinstance(annotation, type) and issubclass(annotation, Wire):
        inner = [_models(field.annotation) for field in annotation.model_fields.values()]
        return {annotation}.union(*inner)
    return set().union(*map(_models, get_args(annotation)))


def _described(model: type[Wire] | None, node: Mapping[str, Any]) -> Schema:
    """The node of a model with the docstrings of its fields. pydantic reads them from the sources, too, but does so
    whenever a model is made: at every start of every program, for 40 ms."""
    if model is None:  # an enum
        return dict(node)
    words = _docstrings(model)
    properties = dict(node["properties"])
    for name, field in model.model_fields.items():
        if name in words:
            alias = field.alias or name
            properties[alias] = {**properties[alias], "description": words[name]}
    return {**node, "properties": properties}


def _docstrings(model: type[Wire]) -> dict[str, str]:
    """Field -> the string that follows it in the source of its class."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if each is Wire or not issubclass(each, Wire):
            continue
        match ast.parse(textwrap.dedent(inspect.getsource(each))).body:
            case [ast.ClassDef(body=body)]:
                for pair in pairwise(body):
                    match pair:
                        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                            found[name] = inspect.cleandoc(text)
    return found


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any], where: str) -> Schema:
    node = _resolved(node, definitions, where)
    schema: Schema = {"type": node.get("type")}
    if "description" in node:
        schema = {"description": " ".join(node["description"].split()), **schema}
    schema.update({word: node[word] for word in _KEPT if word in node})
    match node.get("type"):
        case "object" if node.get("title") == _POD_TEMPLATE:
            schema.update(_pod_template(node, definitions, where))
        case "object" if "properties" in node:
            schema.update(_properties(node, definitions, where))
        case "object" if isinstance(node.get("additionalProperties"), dict) and "maxProperties" in node:
            schema["additionalProperties"] = _structural(node["additionalProperties"], definitions, f"{where}.*")
        case "array" if "items" in node and "maxItems" in node:
            schema["items"] = _structural(node["items"], definitions, f"{where}[]")
            schema.update(_list_type(node["items"]))
        case "string" if "maxLength" not in node and "enum" not in node:
            raise UnsupportedSchemaError(f"{where}: a string needs a max_length or an enum")
        case "integer" if "exclusiveMaximum" in node:
            schema["maximum"] = node["exclusiveMaximum"] - 1
        case str(scalar) if scalar in _SCALARS:
            pass
        case _:
            raise UnsupportedSchemaError(
                f"{where}: no structural schema for {dict(node)}; a list or map needs a max_length"
            )
    unknown = node.keys() - set(_KEPT) - _READ - _DROPPED
    if unknown or ("exclusiveMaximum" in node and node.get("type") != "integer"):
        raise UnsupportedSchemaError(f"{where}: no structural schema for {sorted(unknown) or 'exclusiveMaximum'}")
    return schema


def _resolved(node: Mapping[str, Any], definitions: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The node with its $ref inlined and without `| None`: absent and null are one thing to an API server."""
    resolved = dict(node)
    while "$ref" in resolved or "anyOf" in resolved:
        if "$ref" in resolved:
            target = definitions[resolved.pop("$ref").removeprefix("#/$defs/")]
        else:
            choices = [choice for choice in resolved.pop("anyOf") if choice != {"type": "null"}]
            if len(choices) != 1:
                raise UnsupportedSchemaError(f"{where}: a union of several types")
            target = choices[0]
        resolved.pop("title", None)  # a class's title tells PodTemplate apart, a field's is noise
        resolved = {**target, **resolved}
    return resolved


def _properties(node: Mapping[str, Any], definitions: Mapping[str, Any], where: str) -> Schema:
    schema: Schema = {}
    if node.get("required"):
        schema["required"] = sorted(node["required"])
    schema["properties"] = {
        name: _structural(field, definitions, f"{where}.{name}") for name, field in node["properties"].items()
    }
    for name, field in schema["properties"].items():
        if "description" not in field:
            raise UnsupportedSchemaError(f"{where}.{name}: a field needs a docstring")
    return schema


def _pod_template(node: Mapping[str, Any], definitions: Mapping[str, Any], where: str) -> Schema:
    metadata = _structural(node["properties"]["metadata"], definitions, f"{where}.metadata")
    return {
        "x-kubernetes-preserve-unknown-fields": True,
        "required": ["spec"],
        "maxProperties": 2,
        "properties": {"metadata": metadata},
    }


def _list_type(items: Mapping[str, Any]) -> Schema:
    """Conditions merge by type; every other list has one writer and is replaced as a whole, which keeps the API
    server's record of field owners small: measured on Kubernetes 1.36, 4,096 nodes of a booking are 297 KB, as a map
    keyed by name 625 KB."""
    if items.get("$ref") == f"#/$defs/{Condition.__name__}":
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return {"x-kubernetes-list-type": "atomic"}
