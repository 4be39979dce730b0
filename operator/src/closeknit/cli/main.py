"""The closeknit command, also installed as kubectl-closeknit."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from closeknit.cli import objects, report
from closeknit.cli.bad_input import BadInput
from closeknit.cli.plan import Refused
from closeknit.cli.plan import plan as decide

BAD_INPUT = 2
DOES_NOT_FIT = 3

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"


@app.callback()
def closeknit() -> None:
    """Places multi-GPU training jobs on the GPUs that are really close together."""


@app.command()
def plan(
    job: Annotated[Path, typer.Option("--filename", "-f", help="File with one TrainingJob, YAML or JSON.")],
    cluster: Annotated[
        Path,
        typer.Option(
            help="File with the cluster's objects, as `kubectl get "
            "nodes,nodetopologies,clustertopologies,trainingjobs,pods,resourceslices,resourceclaims,priorityclasses "
            "-A -o yaml` prints them. Kinds may be missing."
        ),
    ],
    output: Annotated[Output, typer.Option("--output", "-o", help="table or json.")] = Output.TABLE,
) -> None:
    """Where a job would go now: nodes, exact GPUs, ranks and predicted bandwidth, or why it does not fit.

    Exit code 0: it fits. 3: it does not fit. 2: a file cannot be used.
    """
    try:
        answer = decide(objects.training_job(job), objects.cluster_objects(cluster))
    except BadInput as error:
        print(f"closeknit: {error}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None
    if output is Output.JSON:
        print(report.as_json(answer))
    else:
        report.print_table(answer, Console())
    if isinstance(answer, Refused):
        raise typer.Exit(DOES_NOT_FIT)


def main() -> None:
    """Entry point of `closeknit` and `kubectl closeknit`."""
    app()
