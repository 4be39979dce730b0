"""`closeknit watch`: on a terminal a page that is drawn again, for a program a line for each change."""

import asyncio
import shutil
import sys
from collections.abc import Callable
from datetime import datetime

import msgspec

from closeknit.api.text.printable import printable
from closeknit.cli.answers.answer import written
from closeknit.cli.answers.form import AnswerForm
from closeknit.cli.answers.job_answers import Explanation
from closeknit.cli.explain.explain_page import draw
from closeknit.cli.explain.explanation import explanation
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.jobs.found_jobs import FoundJob, asked_job
from closeknit.cli.live.cluster_connection import NOT_INSTALLED, reached
from closeknit.cli.output.page import Ink, Inked, Page, Paper, paper
from closeknit.cli.watch.screen_rows import fitting
from closeknit.cli.watch.timeline import first_step, timeline
from closeknit.kube.errors import Transient, Unauthorized

EVERY_S = 1.0
SUCCEEDED, FAILED = "Succeeded", "Failed"


async def watch(name: str, reach: Reach, form: AnswerForm, clock: Callable[[], datetime]) -> bool:
    """Shows a job until it is over. Gives whether it has succeeded. Raises NotThere, also once the job is gone."""
    screen = _Screen(paper(), form, clock)
    async with reached(reach, missing=NOT_INSTALLED) as api:
        found = await asked_job(api, name, reach)
        key = found.job.key
        there = Reach(namespace=key.namespace)
        uid = found.job.metadata.uid
        screen.show(found)
        is_refused = False
        while found.job.state not in (SUCCEEDED, FAILED):
            await asyncio.sleep(EVERY_S)
            try:
                found, is_refused = await asked_job(api, key.name, there), False
            except Transient as error:
                screen.say(printable(f"{' '.join(str(error).split())}; asking again"))
                continue
            except Unauthorized:  # once: before the next request the login is renewed
                if is_refused:
                    raise
                is_refused = True
                continue
            except NotThere:
                raise NotThere(f"{key} is gone") from None
            if found.job.metadata.uid != uid:
                raise NotThere(f"{key} is gone; another job of that name is there")
            screen.show(found)
        return found.job.state == SUCCEEDED


class _Screen:
    """Where it is shown."""

    def __init__(self, on: Paper, form: AnswerForm, clock: Callable[[], datetime]) -> None:
        self._paper = on
        self._form = form
        self._clock = clock
        self._rows = 0
        """Of the terminal that were drawn last, and are drawn over."""
        self._told: object = None

    def show(self, found: FoundJob) -> None:
        """What is news, or on a terminal all of it."""
        answer = explanation(found)
        if self._form.is_for_programs:
            if answer != self._told:
                self._told = answer
                sys.stdout.write(_record(answer, self._form))
                sys.stdout.flush()
        elif self._paper.is_cut:
            self._draw(found, answer)
        else:
            self._tell(found, answer)

    def say(self, words: str) -> None:
        """Something about the watching itself."""
        if words != self._told:
            self._told = words
            print(f"closeknit: {words}", file=sys.stderr)
            self._rows = 0

    def _draw(self, found: FoundJob, answer: Explanation) -> None:
        now = self._clock()
        page = Page(self._paper)
        draw(answer, page, now, is_wide=self._form is AnswerForm.WIDE)
        page.gap()
        for phase, words in timeline(found.job, found.pods, now):
            page.say(Inked(f"{phase}: ", Ink.STRONG), words)
        if (length := first_step(found.job)) is not None:
            page.say(Inked("first step: ", Ink.STRONG), f"after {length}")
        back = f"\x1b[{self._rows}A\x1b[J" if self._rows else ""
        lines, self._rows = fitting(page.lines, *shutil.get_terminal_size())
        sys.stdout.write(back + "".join(f"{line}\n" for line in lines))
        sys.stdout.flush()

    def _tell(self, found: FoundJob, answer: Explanation) -> None:
        now = self._clock()
        phases = timeline(found.job, found.pods, now)
        starts = phases[-1][1].partition(": ")[2] if phases and answer.state == "Starting" else ""
        told = answer.state, answer.reason, starts, first_step(found.job), len(answer.runs)
        if told == self._told:
            return
        self._told = told
        words = answer.message or starts
        if answer.state == "Running" and not answer.reason:
            words = f"first step after {told[3]}" if told[3] else ""
        page = Page(self._paper)
        page.columns((f"{now.astimezone():%H:%M:%S}", answer.state, answer.reason or "-", words or "-"), ())
        page.show()
        sys.stdout.flush()


def _record(answer: Explanation, form: AnswerForm) -> str:
    """One line of JSON, or one document of YAML."""
    if form is AnswerForm.JSON:
        return msgspec.json.encode(answer).decode() + "\n"
    return f"---\n{written(answer, form)}"
