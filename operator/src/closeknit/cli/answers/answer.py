"""The shape of an answer for programs, and how it is written.

The first field is `kind`, the others are in camelCase. A field that says nothing is null or empty, and never absent, so
that a program needs no second way to read it. Fields may be added; none is renamed, and none gets another meaning.
Reasons are those of docs/reference/names.md.
"""

import json
import sys

import msgspec

from closeknit.cli.answers.form import AnswerForm


class AnswerPart(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of what stands inside an answer."""


class Answer(msgspec.Struct, frozen=True, rename="camel", kw_only=True, tag_field="kind"):
    """Base of answers."""


def written(answer: Answer, form: AnswerForm) -> str:
    """The answer as JSON or YAML, of ASCII alone: it may be read on a terminal, and has words of others."""
    body = msgspec.to_builtins(answer)
    if form is AnswerForm.JSON:
        return json.dumps(body, indent=2) + "\n"
    import yaml  # noqa: PLC0415 - the other forms need not wait for it

    return str(yaml.safe_dump(body, sort_keys=False, width=120))


def show(answer: Answer, form: AnswerForm) -> None:
    """Writes it to standard output."""
    sys.stdout.write(written(answer, form))
