"""The field tables of docs/reference, from the same schemas that the API server gets."""

from collections.abc import Iterator
from typing import Any

from closeknit.api.crd.schema import Schema


def reference_page(definition: dict[str, Any]) -> str:
    """A Markdown page for one CustomResourceDefinition: names, columns, fields of spec and status, rules."""
    names, version = definition["spec"]["names"], definition["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    sections = [
        f"# {names['kind']}",
        schema["description"],
        f"`apiVersion: {definition['spec']['group']}/{version['name']}` · {definition['spec']['scope'].lower()} · "
        f"short name `{names['shortNames'][0]}` · the same text: `kubectl explain {names['singular']} --recursive`",
        *(_fields(part, schema["properties"][part], part in schema.get("required", ())) for part in ("spec", "status")),
        "## Columns of `kubectl get`",
        "\n".join(["| column | shows |", "|---|---|", *map(_column, version["additionalPrinterColumns"])]),
    ]
    rules = list(_rules(schema, ""))
    if rules:
        sections += ["## Rules", "\n".join(["| field | the API server refuses with |", "|---|---|", *rules])]
    return "\n\n".join(sections) + "\n"


def _fields(name: str, schema: Schema, is_required: bool) -> str:
    title = f"## {name}" if is_required else f"## {name} (optional)"
    rows = [f"| `{path}` | {_type(field)} | {_text(field, must)} |" for path, field, must in _walk(schema, "")]
    return "\n".join([title, "", schema["description"], "", "| field | type | |", "|---|---|---|", *rows])


def _walk(schema: Schema, path: str) -> Iterator[tuple[str, Schema, bool]]:
    """Every field below, with whether the object around it requires it; depth first, as declared."""
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, field, name in schema.get("required", ())
        if "items" in field:
            yield from _walk(field["items"], f"{here}[]")
        elif "additionalProperties" in field:
            yield from _walk(field["additionalProperties"], f"{here}.*")
        else:
            yield from _walk(field, here)


def _type(field: Schema) -> str:
    if "items" in field:
        return f"list of {_type(field['items'])}, at most {field['maxItems']}"
    if "additionalProperties" in field:
        return f"map to {_type(field['additionalProperties'])}, at most {field['maxProperties']}"
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    if "minimum" in field and "maximum" in field:
        return f"{field['type']} {field['minimum']} to {field['maximum']}"
    return str(field["type"])


def _text(field: Schema, is_required: bool) -> str:
    text = str(field["description"]).replace("|", "\\|").replace("<", "&lt;")
    return f"**Required.** {text}" if is_required else text


def _column(column: dict[str, Any]) -> str:
    wide = " (with `-o wide`)" if column.get("priority") else ""
    return f"| {column['name'].upper()} | {column['description']}{wide} |"


def _rules(schema: Schema, path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        field = f"{path}{rule.get('fieldPath', '')}".lstrip(".")
        yield f"| `{field}` | {rule['message']} |"
    for name, field in schema.get("properties", {}).items():
        yield from _rules(field, f"{path}.{name}")
    if "items" in schema:
        yield from _rules(schema["items"], f"{path}[]")
