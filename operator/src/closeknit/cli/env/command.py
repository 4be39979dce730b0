"""`closeknit env`: finds the job that was asked for, and prints what is set in its trainers."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from closeknit.api.names import DEFAULT_NAMESPACE, JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.text.printable import printable
from closeknit.cli.env.output import as_json, print_sheet
from closeknit.cli.env.variables import sheet
from closeknit.cli.input import cluster_file
from closeknit.cli.input.given import Reach, check_read_once
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.input.standard_input import named
from closeknit.cli.plan.plan_decision import PlanRefused, Sitting, decided
from closeknit.cluster.booking.booking import names
from closeknit.cluster.booking.job import InvalidJob
from closeknit.cluster.cluster import Cluster, build
from closeknit.lifecycle.status.stored_job import is_finished


@dataclass(frozen=True, slots=True)
class EnvArguments:
    """Which trainer, and where its job is described: in files, or in the cluster."""

    job: str | None
    file: Path | None
    """Of a job that need not be in the cluster yet."""
    cluster: Path | None
    reach: Reach
    node_rank: int


async def show(asked: EnvArguments, *, is_json: bool) -> None:
    """Prints the environment of one trainer. Raises BadInput and NotThere."""
    found = sheet(await _found(asked), asked.node_rank)
    if is_json:
        print(as_json(found))
    else:
        print_sheet(found)


async def _found(asked: EnvArguments) -> Sitting:
    if asked.cluster is not None:
        asked.reach.check_not_asked("--cluster")
    if asked.file is not None:
        if asked.cluster is None or asked.job is not None:
            raise NotThere("give --filename together with --cluster, and without the name of a job")
        check_read_once({"--filename": asked.file, "--cluster": asked.cluster})
        written = cluster_file.training_job(asked.file, asked.reach.namespace)
        cluster = cluster_file.cluster_file(asked.cluster)
        written.check_admitted(cluster.lifted)
        answer = decided(written.job, cluster.objects, datetime.now(UTC))
        if isinstance(answer, PlanRefused):
            replaced = f" {answer.booked}; the job of the file, in its place," if answer.booked is not None else ""
            words = f"{answer.job}{replaced} does not fit: {answer.pending.reason}: {answer.pending.message}"
            raise NotThere(printable(words))
        return answer
    if asked.job is None:
        raise NotThere("give the name of a job, or --filename and --cluster")
    if asked.cluster is not None:
        namespace, found = asked.reach.namespace or DEFAULT_NAMESPACE, cluster_file.cluster_file(asked.cluster).objects
        return _booked(build(found), asked.job, namespace, asked.reach, named(asked.cluster))
    from closeknit.cli.env import live_job  # noqa: PLC0415 - files need not wait for its libraries

    namespace, found = await live_job.objects(asked.job, asked.reach)
    return _booked(build(found), asked.job, namespace, asked.reach, "the cluster")


def _key(cluster: Cluster, name: str, where: str) -> JobKey:
    """That of the only job of a name, in whatever namespace. Raises NotThere."""
    found = sorted(key for key in {*cluster.jobs, *cluster.invalid_jobs} if key[1] == name)
    if len(found) == 1:
        return JobKey(*found[0])
    if not found:
        raise NotThere(printable(f"{where} has no TrainingJob {name} in any namespace"))
    places = names([namespace for namespace, _ in found])
    raise NotThere(printable(f"{where} has a TrainingJob {name} in each of {places}: name one by --namespace"))


def _booked(cluster: Cluster, name: str, namespace: str, reach: Reach, where: str) -> Sitting:
    key = _key(cluster, name, where) if reach.everywhere else JobKey(namespace, name)
    job = cluster.jobs.get(key)
    if job is None:
        invalid: InvalidJob | None = cluster.invalid_jobs.get(key)
        raise NotThere(f"{key} cannot be read: {invalid.error}" if invalid else f"{where} has no TrainingJob {key}")
    placement = job.status.placement
    if placement is None or cluster.booking_of(key) is None:
        raise NotThere(f"{key} holds no GPUs: {_why(job)}; `closeknit plan` shows where it would go")
    return Sitting(job, placement, cluster)


def _why(job: TrainingJob) -> str:
    if is_finished(job):
        return "it is over"
    pending = job.status.pending
    return f"{pending.reason}: {pending.message}" if pending is not None else "nothing is booked for it"
