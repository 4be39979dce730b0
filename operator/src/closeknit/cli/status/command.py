"""`closeknit status`."""

from datetime import datetime
from pathlib import Path

from closeknit.cli.answers.answer import show
from closeknit.cli.answers.form import AnswerForm
from closeknit.cli.input.given import Reach
from closeknit.cli.output.page import Page, paper
from closeknit.cli.status.glance import cluster_status
from closeknit.cli.status.status_page import draw


async def status(reach: Reach, cluster: Path | None, form: AnswerForm, now: datetime) -> None:
    """Prints it. Raises BadInput and NotThere."""
    answer, found = await cluster_status(reach, cluster)
    if form.is_for_programs:
        show(answer, form)
        return
    if found.objects is not None:
        from closeknit.cli.jobs.file_jobs import clock_of  # noqa: PLC0415 - who asks a cluster need not wait for its models

        now = clock_of(found.objects, now)
    page = Page(paper())
    draw(answer, page, now, is_wide=form is AnswerForm.WIDE)
    page.show()
