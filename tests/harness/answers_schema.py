"""`python -m harness.answers_schema` writes docs/reference/answers.schema.json: the JSON that commands answer with."""

import json
from pathlib import Path
from typing import Any

import msgspec

from closeknit.cli.answers.answer import Answer
from closeknit.cli.answers.job_answers import Explanation, JobList, RankList
from closeknit.cli.answers.status_answer import ClusterStatus

FILE = Path(__file__).parents[2] / "docs" / "reference" / "answers.schema.json"
ANSWERS: tuple[type[Answer], ...] = (ClusterStatus, JobList, Explanation, RankList)


def schema() -> dict[str, Any]:
    """One of the answers, by its kind."""
    refs, components = msgspec.json.schema_components(ANSWERS, ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What closeknit's commands answer with -o json",
        "oneOf": list(refs),
        "$defs": components,
    }


def text() -> str:
    """The file."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
