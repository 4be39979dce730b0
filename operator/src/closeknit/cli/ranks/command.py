"""`closeknit ranks`."""

from pathlib import Path

from closeknit.api.objects import TrainingJob
from closeknit.cli.answers.answer import show
from closeknit.cli.answers.form import AnswerForm
from closeknit.cli.answers.job_answers import RankList
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.jobs.found_jobs import asked_job, found_job
from closeknit.cli.live.cluster_connection import NOT_INSTALLED, TRAINING_JOBS, reached
from closeknit.cli.output.page import Page, paper
from closeknit.cli.ranks.rank_table import draw
from closeknit.cli.ranks.seats import seats
from closeknit.cluster.booking.job import InvalidJob, job_from_builtins


async def ranks(name: str, reach: Reach, cluster: Path | None, form: AnswerForm) -> None:
    """Prints where each rank sits. Raises BadInput and NotThere."""
    answer = await _live(name, reach) if cluster is None else await _recorded(name, reach, cluster)
    if form.is_for_programs:
        show(answer, form)
        return
    page = Page(paper())
    draw(answer, page, is_wide=form is AnswerForm.WIDE)
    page.show()


async def _live(name: str, reach: Reach) -> RankList:
    async with reached(reach, missing=NOT_INSTALLED) as api:
        found = await asked_job(api, name, reach)
        key = found.job.key
        job = job_from_builtins(await api.get(TRAINING_JOBS, key.name, namespace=key.namespace))
    return seats(_readable(job), found.pods, {})


async def _recorded(name: str, reach: Reach, cluster: Path) -> RankList:
    from closeknit.cli.plan.plan_decision import Sitting  # noqa: PLC0415 - what decides takes half a second, for a file alone
    from closeknit.cluster.cluster import build  # noqa: PLC0415

    found = await found_job(name, reach, cluster)
    built = build(found.objects or ())
    key = found.job.key
    job = _readable(built.jobs.get(key) or built.invalid_jobs[key])
    uuids: dict[int, tuple[str, ...]] = {}
    if job.status.placement is not None:
        gang = Sitting(job, job.status.placement, built).gang()
        uuids = {} if gang is None else {at: tuple(member.uuids) for at, member in enumerate(gang.members)}
    return seats(job, found.pods, uuids)


def _readable(job: TrainingJob | InvalidJob) -> TrainingJob:
    if isinstance(job, InvalidJob):
        raise NotThere(f"{job.key} cannot be read: {job.error}")
    return job
