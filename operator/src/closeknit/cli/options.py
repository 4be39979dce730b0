"""Options that several commands have, and what becomes of a refusal. Nothing large but typer is imported."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from closeknit.cli.answers.form import AnswerForm
from closeknit.cli.completion import names_there
from closeknit.cli.input.bad_input import BadInput
from closeknit.cli.input.not_there import NotThere

BAD_INPUT = 2

Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", metavar="FILE", help="How to reach the cluster.")]
Context = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Of the kubeconfig, instead of the current one.")
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help="Where to look; else where kubectl would.", autocompletion=names_there.namespaces
    ),
]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Look in all namespaces.")]
ClusterFile = Annotated[
    Path | None, typer.Option("--cluster", metavar="FILE", help="A file of the cluster's objects, which is not asked.")
]
OutputForm = Annotated[AnswerForm, typer.Option("--output", "-o", help="For people, or for programs.")]


@contextmanager
def refusals() -> Iterator[None]:
    """What cannot be used or shown is one line."""
    try:
        yield
    except (BadInput, NotThere) as error:
        print(f"closeknit: {error}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None
