"""The closeknit command, also installed as kubectl-closeknit.

What a command needs is imported when it runs: `--help`, a mistake in an option and a completion by the shell take
typer and nothing else.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.completion import completion_init, get_completion_script

from closeknit.cli import command_signatures
from closeknit.cli.completion import names_there
from closeknit.cli.completion.kubectl import complete
from closeknit.cli.input.given import Reach, check_read_once
from closeknit.cli.options import Context, Kubeconfig, refusals
from closeknit.cli.output.outlet import answering

if TYPE_CHECKING:
    from typer.models import CommandInfo

    from closeknit.cli.plan.plan_decision import Placed, PlanRefused
    from closeknit.cli.plan.supposed import Supposed

PROGRAM = "closeknit"
DOES_NOT_FIT = 3

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,  # typer's own options write to the user's ~/.bashrc
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
completion_init()


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"


class Form(StrEnum):
    """How a machine is shown."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    SVG = "svg"


class Shell(StrEnum):
    """Which shells complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version  # noqa: PLC0415 - for this option alone

        print(f"closeknit {version('closeknit')}")
        raise typer.Exit


def _name(command: "CommandInfo") -> str:
    return command.callback.__name__ if command.callback is not None else ""


@app.callback()
def closeknit(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Places multi-GPU training jobs on the GPUs that are really close together."""


@app.command()
def plan(  # noqa: PLR0913 - one for each option
    job: Annotated[
        Path,
        typer.Option(
            "--filename", "-f", metavar="FILE", help="The TrainingJob, YAML or JSON; - is stdin.", show_default=False
        ),
    ],
    cluster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file of the cluster's objects; without it, it is asked.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Where the job is to be, if its file does not say.")
    ] = None,
    *,
    relax: Annotated[
        bool, typer.Option("--relax", help="Where it does not fit, also where it would go with each change that helps.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE", help="As if this node got no job; may be repeated.", autocompletion=names_there.nodes
        ),
    ] = None,
    as_if_free: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GPUS",
            help="As if nobody held these: NODE, NODE/0,1 or a uuid; may be repeated.",
            autocompletion=names_there.nodes,
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="For people or for programs.")] = Output.TABLE,
) -> None:
    """Where a job would go now, or why it does not fit.

    Nodes, exact GPUs, ranks and predicted bandwidth: the operator's own decision. The cluster that kubectl would ask is
    also asked, by a dry run, whether it would take the job and its Pods. Or a file of its objects is enough, even
    without some kinds; the output says what that leaves unchecked.

    \b
      closeknit plan -f job.yaml
      kinds=nodes,nodetopologies,clustertopologies,trainingjobs,pods
      kinds=$kinds,resourceslices,resourceclaims,deviceclasses,priorityclasses
      kinds=$kinds,persistentvolumeclaims,persistentvolumes,storageclasses
      kubectl get $kinds -A -o yaml > cluster.yaml
      closeknit plan -f job.yaml --cluster cluster.yaml

    Exit code 0: it fits. 3: it does not fit. 2: a file cannot be used.
    """
    from datetime import UTC, datetime  # noqa: PLC0415

    from closeknit.cli.plan import plan_json  # noqa: PLC0415
    from closeknit.cli.plan.plan_decision import PlanRefused  # noqa: PLC0415
    from closeknit.cli.plan.supposed import supposed  # noqa: PLC0415

    granted = supposed(without, as_if_free)
    with refusals():
        if cluster is None:
            import asyncio  # noqa: PLC0415

            from closeknit.cli.live import cluster_objects  # noqa: PLC0415

            reach = Reach(kubeconfig, context, namespace)
            answer = asyncio.run(cluster_objects.plan(job, reach, datetime.now(UTC), granted))
        else:
            Reach(kubeconfig, context).check_not_asked("--cluster")
            answer = _planned(job, cluster, namespace, granted)
    if output is Output.JSON:
        print(plan_json.as_json(answer, str(granted), is_relaxed=relax))
    else:
        from rich.console import Console  # noqa: PLC0415 - programs need not wait for it

        from closeknit.cli.plan.plan_table import print_table  # noqa: PLC0415

        print_table(answer, Console(), str(granted), is_relaxed=relax)
    if isinstance(answer, PlanRefused):
        raise typer.Exit(DOES_NOT_FIT)


def _planned(job: Path, cluster: Path, namespace: str | None, granted: "Supposed") -> "Placed | PlanRefused":
    """The decision from files. Raises BadInput and NotThere."""
    from datetime import UTC, datetime  # noqa: PLC0415

    from closeknit.cli.input import cluster_file  # noqa: PLC0415
    from closeknit.cli.plan.plan_decision import plan as decide  # noqa: PLC0415

    check_read_once({"--filename": job, "--cluster": cluster})
    written = cluster_file.training_job(job, namespace)
    found = cluster_file.cluster_file(cluster)
    written.check_admitted(found.lifted)
    return decide(written.job, found.objects, datetime.now(UTC), granted)


@app.command()
def simulate(
    trace: Annotated[
        Path, typer.Argument(help="The jobs, CSV or one JSON object a line; - is stdin.", show_default=False)
    ],
    cluster: Annotated[
        Path, typer.Option(metavar="FILE", help="The cluster's objects, as `closeknit plan` takes them.")
    ],
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write a picture, SVG.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="For people or for programs.")] = Output.TABLE,
) -> None:
    """What would become of a trace of jobs on a cluster.

    Waits, locality, allocation and fragmentation. Replays arrivals through the operator's own decision on a virtual
    clock, without a cluster. A trace has the columns arrival and duration, in seconds, and gpus (also a part of
    one, such as 0.25); more are in the documentation.

    \b
      closeknit simulate jobs.csv --cluster cluster.yaml
      closeknit simulate jobs.csv --cluster cluster.yaml --plot jobs.svg

    Exit code 0: all jobs have run. 3: some can never begin. 2: a file cannot be used.
    """
    from datetime import UTC, datetime  # noqa: PLC0415

    from closeknit.cli.simulate.command import SimulateArguments, simulate  # noqa: PLC0415

    with refusals():
        account = simulate(SimulateArguments(trace, cluster, plot), datetime.now(UTC), is_json=output is Output.JSON)
    if account.never:
        raise typer.Exit(DOES_NOT_FIT)


@app.command()
def env(  # noqa: PLR0913 - one for each option
    job: Annotated[
        str | None, typer.Argument(help="Name of a TrainingJob of the cluster.", autocompletion=names_there.jobs)
    ] = None,
    *,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Where that job is; else where kubectl would look.")
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Look for it in all namespaces.")] = False,
    node_rank: Annotated[int, typer.Option(help="Which of its Pods.")] = 0,
    file: Annotated[
        Path | None,
        typer.Option("--filename", "-f", metavar="FILE", help="A TrainingJob instead; takes --cluster."),
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The cluster's objects, as `closeknit plan` takes them.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="For people or for programs.")] = Output.TABLE,
) -> None:
    """What is set in a job's trainer, by whom, and why.

    Every environment variable, with warnings of settings that slow training down, and what is better left to NCCL.

    \b
      closeknit env my-job -n ml
      closeknit env my-job -n ml --node-rank 3
      closeknit env -f job.yaml --cluster cluster.yaml

    Exit code 0: it is shown. 2: there is nothing to show, or a file cannot be used.
    """
    import asyncio  # noqa: PLC0415

    from closeknit.cli.env.command import EnvArguments, show  # noqa: PLC0415

    reach = Reach(kubeconfig, context, namespace, everywhere)
    with refusals():
        asyncio.run(show(EnvArguments(job, file, cluster, reach, node_rank), is_json=output is Output.JSON))


@app.command()
def topology(
    node: Annotated[
        str | None,
        typer.Argument(help="Name of the node; without one, all are listed.", autocompletion=names_there.nodes),
    ] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--filename", "-f", metavar="FILE", help="NodeTopologies, YAML or JSON; - is stdin.")
    ] = None,
    smi: Annotated[
        Path | None, typer.Option("--from-smi", metavar="FILE", help="What nvidia-smi topo -m printed; - is stdin.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    live: Annotated[
        bool, typer.Option("--live", help="Also what its GPUs do at the moment, until interrupted.")
    ] = False,
    form: Annotated[
        Form, typer.Option("--output", "-o", help="For people, for programs, or as a picture.")
    ] = Form.TABLE,
) -> None:
    """What joins the GPUs of a machine.

    NVLinks, PCIe, NICs, and what of it is out of use. Of a node of the cluster, as its agent measured it; of a
    file; or of a text that somebody pasted.

    \b
      closeknit topology
      closeknit topology gpu-01
      closeknit topology gpu-01 --live
      kubectl get nodetopology gpu-01 -o yaml | closeknit topology -f -
      nvidia-smi topo -m | closeknit topology --from-smi -
      closeknit topology --from-smi topo.txt -o svg > topo.svg

    Exit code 0: it is shown. 2: there is nothing to show, or a file cannot be used.
    """
    import asyncio  # noqa: PLC0415

    from closeknit.cli.topology.command import TopologyArguments, show  # noqa: PLC0415

    with refusals():
        asyncio.run(show(TopologyArguments(node, file, smi, Reach(kubeconfig, context), live), form.value))


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="Which shell.", show_default=False)]) -> None:
    """What makes a shell complete words and names.

    Commands, options, and names of jobs, nodes and namespaces of the cluster. kubectl does it by itself.

    \b
      source <(closeknit completion bash)
      source <(closeknit completion zsh)
      closeknit completion fish | source
    """
    print(get_completion_script(prog_name=PROGRAM, complete_var=f"_{PROGRAM.upper()}_COMPLETE", shell=shell.value))


command_signatures.add_to(app)
# As --help lists them: what is asked most comes first.
_ORDER = ("status", "jobs", "explain", "watch", "logs", "ranks", "env", "plan", "simulate", "topology", "map")
app.registered_commands.sort(key=lambda each: _ORDER.index(name) if (name := _name(each)) in _ORDER else len(_ORDER))


def complete_for_kubectl() -> None:
    """What kubectl runs to complete the words of its plugin."""
    complete(app, PROGRAM, sys.argv[1:])


def main() -> None:
    """Runs the command; closeknit.start is what an installation calls."""
    answering(app)
