"""What programs read: the published schema is that of the answers, and every field of an answer is always there."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from closeknit.cli.main import app
from harness import answers_schema, example_jobs

CLUSTER = ["--cluster", str(Path(__file__).parents[4] / "examples/clusters/busy.yaml")]
COMMANDS = [
    ["jobs", "-A"],
    ["jobs"],
    *(["explain", name, "-A"] for name in ("llama-70b", "moe-16", "tensor-4", "vision", "eval", "night")),
    ["ranks", "llama-70b", "-n", "ml"],
    ["ranks", "tensor-4", "-n", "ml"],
]


def test_the_schema_is_that_of_the_answers() -> None:
    assert answers_schema.FILE.read_text() == answers_schema.text(), "run: make generate"


def test_the_example_is_what_the_operator_writes() -> None:
    assert example_jobs.FILE.read_text() == example_jobs.text(), "run: make generate"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_answer_has_every_field_of_the_schema(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, *CLUSTER, "-o", "json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    (kind,) = (each for each in answers_schema.ANSWERS if each.__name__ == answer["kind"])
    msgspec.convert(answer, kind)
    check(answer, {"$ref": f"#/$defs/{kind.__name__}"}, answers_schema.schema()["$defs"])
    as_yaml = CliRunner().invoke(app, [*command, *CLUSTER, "-o", "yaml"])
    assert yaml.safe_load(as_yaml.stdout) == answer


def check(value: Any, schema: dict[str, Any], definitions: dict[str, Any]) -> None:
    """No field but those of the schema, and each of them."""
    schema = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for each in schema.get("anyOf", []):
        if value is not None and each != {"type": "null"}:
            check(value, each, definitions)
    if "properties" in schema:
        assert value.keys() == schema["properties"].keys()
        for name, inner in schema["properties"].items():
            check(value[name], inner, definitions)
    if isinstance(value, list) and "items" in schema:
        for each in value:
            check(each, schema["items"], definitions)
