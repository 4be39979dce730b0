"""The commands about jobs. What each needs is imported when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from closeknit.cli.answers.form import AnswerForm
from closeknit.cli.completion import names_there
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.options import ClusterFile, Context, Everywhere, Kubeconfig, Namespace, OutputForm, refusals

JOB_FAILED = 3

_Job = Annotated[
    str, typer.Argument(help="Name of a TrainingJob.", show_default=False, autocompletion=names_there.jobs)
]


def status(
    namespace: Namespace = None,
    *,
    everywhere: Everywhere = False,
    cluster: ClusterFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputForm = AnswerForm.TABLE,
) -> None:
    """The cluster at a glance.

    GPUs by state, what of the free ones is together, and why jobs wait.

    The counts of the cluster are the operator's own, with the ClusterTopology default. Who may not read that sees the
    jobs of a namespace. -o wide adds the versions of client and operator.

    \b
      closeknit status
      closeknit status -n ml -o wide

    Exit code 0: it is shown. 2: there is nothing to show, or a file cannot be used.
    """
    import asyncio  # noqa: PLC0415
    from datetime import UTC, datetime  # noqa: PLC0415

    from closeknit.cli.status.command import status as shown  # noqa: PLC0415

    with refusals():
        reach = Reach(kubeconfig, context, namespace, everywhere)
        asyncio.run(shown(reach, cluster, output, datetime.now(UTC)))


def jobs(
    namespace: Namespace = None,
    *,
    everywhere: Everywhere = False,
    cluster: ClusterFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputForm = AnswerForm.TABLE,
) -> None:
    """What jobs there are.

    Those that hold GPUs come first, then those that wait, and last those that are over.

    \b
      closeknit jobs
      closeknit jobs -A -o wide

    Exit code 0: they are shown. 2: there is nothing to show, or a file cannot be used.
    """
    import asyncio  # noqa: PLC0415
    from datetime import UTC, datetime  # noqa: PLC0415

    from closeknit.cli.jobs.command import list_jobs  # noqa: PLC0415

    with refusals():
        reach = Reach(kubeconfig, context, namespace, everywhere)
        asyncio.run(list_jobs(reach, cluster, output, datetime.now(UTC)))


def explain(
    job: _Job,
    *,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    cluster: ClusterFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputForm = AnswerForm.TABLE,
) -> None:
    """Why a job waits, or where it sits, and what to do.

    Why it waits and what would help, or why it sits where it sits and what that costs; and what happened to it.

    One reason and one next step come first. -o wide has all changes that would help, every end of a run with its phases
    and last words, and every Pod.

    \b
      closeknit explain my-job -n ml
      closeknit explain my-job -n ml -o json | jq .nextStep

    Exit code 0: it is shown. 2: there is nothing to show, or a file cannot be used.
    """
    import asyncio  # noqa: PLC0415
    from datetime import UTC, datetime  # noqa: PLC0415

    from closeknit.cli.explain.command import explain as explained  # noqa: PLC0415

    with refusals():
        reach = Reach(kubeconfig, context, namespace, everywhere)
        asyncio.run(explained(job, reach, cluster, output, datetime.now(UTC)))


def ranks(
    job: _Job,
    *,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    cluster: ClusterFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputForm = AnswerForm.TABLE,
) -> None:
    """Which rank has which GPU, and what its Pod does.

    A line for each Pod; with -o wide for each rank, with uuid and its coordinates in the parallelism.

    \b
      closeknit ranks my-job -n ml
      closeknit ranks my-job -n ml -o wide

    Exit code 0: it is shown. 2: there is nothing to show, or a file cannot be used.
    """
    import asyncio  # noqa: PLC0415

    from closeknit.cli.ranks.command import ranks as seated  # noqa: PLC0415

    with refusals():
        asyncio.run(seated(job, Reach(kubeconfig, context, namespace, everywhere), cluster, output))


def watch(
    job: _Job,
    *,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputForm = AnswerForm.TABLE,
) -> None:
    """One job live, from the queue to its end.

    Phases, Pods, and when it is expected to start. On a terminal one page that is drawn again; for a program a line
    for each change (-o json: an object a line).

    \b
      closeknit watch my-job -n ml

    Exit code 0: the job has succeeded. 3: it has failed. 2: it is not there, or gone.
    """
    import asyncio  # noqa: PLC0415
    from datetime import UTC, datetime  # noqa: PLC0415

    from closeknit.cli.watch.command import watch as watched  # noqa: PLC0415

    with refusals():
        reach = Reach(kubeconfig, context, namespace, everywhere)
        has_succeeded = asyncio.run(watched(job, reach, output, lambda: datetime.now(UTC)))
    if not has_succeeded:
        raise typer.Exit(JOB_FAILED)


def logs(  # noqa: PLR0913 - one for each option
    job: _Job,
    *,
    rank: Annotated[list[int] | None, typer.Option("--rank", "-r", help="Of which rank; may be repeated.")] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Of every Pod, each line with its ranks.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job is over; waits for Pods that are not there yet.")
    ] = False,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Of the run before the last restart.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="The last lines of each Pod alone.")] = None,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """What the ranks of a job print.

    Those of rank 0, or of a job that has failed the one that ended it. With --follow also before the Pods exist,
    and on through restarts.

    \b
      closeknit logs my-job -n ml -f
      closeknit logs my-job -n ml --rank 8 --tail 100
      closeknit logs my-job -n ml --previous

    Exit code 0: it is shown. 2: there is nothing to show.
    """
    import asyncio  # noqa: PLC0415

    from closeknit.cli.logs.command import logs as printed  # noqa: PLC0415
    from closeknit.cli.logs.log_reader import LogsArguments  # noqa: PLC0415

    with refusals():
        if rank and everyone:
            raise NotThere("give --rank or --all")
        if follow and previous:
            raise NotThere("give --follow or --previous: what has ended prints nothing more")
        reach = Reach(kubeconfig, context, namespace, everywhere)
        asyncio.run(printed(LogsArguments(job, tuple(rank or ()), everyone, follow, tail, reach, previous)))


def map(  # noqa: A001 - the name of the command
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", help="Of the operator; else it is looked for.", autocompletion=names_there.namespaces
        ),
    ] = None,
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of this machine's loopback; 0: any.")] = 8080,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print where it is.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """The web map of the cluster, in a browser.

    Forwards a port of this machine to the operator, as kubectl port-forward does, until it is interrupted. The page
    asks for a token; nothing of the kubeconfig reaches it.

    \b
      closeknit map
      closeknit map -n closeknit-system --port 0 --no-browser

    Exit code 2: the operator is not there, or you may not forward a port to it.
    """
    import asyncio  # noqa: PLC0415

    from closeknit.cli.map.command import MapArguments, forward  # noqa: PLC0415

    with refusals():
        asyncio.run(forward(MapArguments(Reach(kubeconfig, context, namespace), port, not no_browser)))


def snapshot(
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Where to write it; else printed.")
    ] = None,
    *,
    true_names: Annotated[
        bool, typer.Option("--true-names", help="Keep the names of jobs, nodes and the like.")
    ] = False,
    cluster: ClusterFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """The cluster as a file, for a bug report.

    What decisions read, with other names by default, and without commands, variables, images, annotations and messages.
    Other commands take it by --cluster. Look through it before you send it.

    \b
      closeknit snapshot --file cluster.yaml

    Exit code 0: it is written. 2: it cannot be, or a file cannot be used.
    """
    import asyncio  # noqa: PLC0415

    from closeknit.cli.snapshot.command import put  # noqa: PLC0415
    from closeknit.cli.snapshot.command import snapshot as taken  # noqa: PLC0415

    with refusals():
        put(asyncio.run(taken(Reach(kubeconfig, context), cluster, is_anonymous=not true_names)), file)


def add_to(app: typer.Typer) -> None:
    """Makes them commands of the program."""
    for command in (status, jobs, explain, ranks, watch, logs, snapshot, map):
        app.command()(command)
