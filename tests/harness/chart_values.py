"""What the chart tells of its values: its README, values.schema.json and docs/reference/chart.md.

`python -m harness.chart_values` makes them from values.yaml and files/values.schema.yaml. The comments have the form of
helm-docs: `# -- ` begins the text of the value below, and the lines after it go on with it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from harness.chart import CHART

ROOT = CHART.parents[1]
PAGE = ROOT / "docs" / "reference" / "chart.md"
README = CHART / "README.md"
SCHEMA = CHART / "values.schema.json"
BEGIN = "<!-- values: written by `make generate` from values.yaml -->\n"
END = "<!-- end of values -->\n"
_LONGEST = 60  # letters of a default that are shown
_JUDGED_LATER = ("pattern", "required", "propertyNames")


class Value(NamedTuple):
    """One value of the chart."""

    path: str
    default: Any
    text: str


def values() -> list[Value]:
    """All values in the order of the file. Raises ValueError for one without a comment."""
    text = (CHART / "values.yaml").read_text()
    defaults = yaml.safe_load(text)
    found: list[Value] = []
    names: list[str] = []
    said: list[str] = []
    for line in text.splitlines():
        if comment := re.match(r" *# -- (.*)", line):
            said = [comment[1]]
        elif said and (more := re.match(r" *# (.*)", line)):
            said.append(more[1])
        elif key := re.match(r"((?:  )*)(\w+):", line):
            depth = len(key[1]) // 2
            if depth > len(names):
                continue  # in a value that is told of as a whole
            names = [*names[:depth], key[2]]
            path = ".".join(names)
            default = _at(defaults, names)
            if said:
                found.append(Value(path, default, " ".join(said)))
                names = names[:depth]
            elif not isinstance(default, dict):
                raise ValueError(f"values.yaml does not say what {path} is")
            said = []
    return found


def _at(tree: Mapping[str, Any], names: list[str]) -> Any:
    value: Any = tree
    for name in names:
        value = value[name]
    return value


def table(page: str) -> Iterator[str]:
    """The rows of all values, with links as from docs/reference, or from the chart's folder."""
    yield "| value | default | |\n|---|---|---|\n"
    for value in values():
        text = value.text
        if page == "README":
            text = re.sub(r"\]\(\.\./(\w)", r"](../../docs/\1", text)
            text = re.sub(r"\]\((\w+\.md)", r"](../../docs/reference/\1", text)
        yield f"| `{value.path}` | {_shown(value)} | {text} |\n"


def _shown(value: Value) -> str:
    text = json.dumps(value.default, ensure_ascii=False) if not isinstance(value.default, str) else value.default
    if len(text) > _LONGEST:
        return "see values.yaml"
    return f"`{text}`" if text else '`""`'


def loosened(schema: Any) -> Any:
    """The schema without what templates/values judges, whose refusals say what was meant."""
    if isinstance(schema, list):
        return [loosened(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-quoted"):
        schema = {**schema, "type": ["string", "number", "boolean"]}
    return {
        key: loosened(each)
        for key, each in schema.items()
        if key not in _JUDGED_LATER and not key.startswith("x-") and (key, each) != ("additionalProperties", False)
    }


def schema() -> dict[str, Any]:
    """values.schema.json: the types of all values, and what each is for."""
    found: dict[str, Any] = loosened(yaml.safe_load((CHART / "files/values.schema.yaml").read_text()))
    found["$comment"] = "Generated from values.yaml and files/values.schema.yaml; do not edit, run: make generate"
    for value in values():
        at: dict[str, Any] = found
        for name in value.path.split("."):
            at["properties"][name] = _own(at["properties"][name], found)
            at = at["properties"][name]
        at["description"] = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", value.text)
    return found


def _own(inner: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """A copy of what is meant, for beside a $ref nothing counts."""
    name = inner.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = json.loads(json.dumps(whole["definitions"][name] if name else inner))
    return found


def filled(text: str, page: str) -> str:
    """A page with the table of today between its marks. Raises ValueError where it has none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no marks for the table of values")
    return f"{before}{begin}{''.join(table(page))}{end}{after}"


def pages() -> dict[Any, str]:
    """What each generated file should hold."""
    return {
        README: filled(README.read_text(), "README"),
        PAGE: filled(PAGE.read_text(), "docs"),
        SCHEMA: json.dumps(schema(), indent=2, ensure_ascii=False) + "\n",
    }


def main() -> None:
    """Writes all three."""
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
