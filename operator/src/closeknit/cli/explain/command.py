"""`closeknit explain`."""

from datetime import datetime
from pathlib import Path

from closeknit.cli.answers.answer import show
from closeknit.cli.answers.form import AnswerForm
from closeknit.cli.explain.explain_page import draw
from closeknit.cli.explain.explanation import explanation
from closeknit.cli.input.given import Reach
from closeknit.cli.jobs.found_jobs import found_job
from closeknit.cli.output.page import Page, paper


async def explain(name: str, reach: Reach, cluster: Path | None, form: AnswerForm, now: datetime) -> None:
    """Prints what is told of one job. Raises BadInput and NotThere."""
    found = await found_job(name, reach, cluster)
    answer = explanation(found)
    if form.is_for_programs:
        show(answer, form)
        return
    if found.objects is not None:
        from closeknit.cli.jobs.file_jobs import clock_of  # noqa: PLC0415 - who asks a cluster need not wait for its models

        now = clock_of(found.objects, now)
    page = Page(paper())
    draw(answer, page, now, is_wide=form is AnswerForm.WIDE)
    page.show()
