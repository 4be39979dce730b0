"""A job as the cluster shows it."""

from dataclasses import dataclass
from functools import cached_property

import msgspec

from closeknit.api.text.printable import printable
from closeknit.cli.answers.job_answers import Explanation, RankLine
from closeknit.cli.explain.explanation import explanation
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.jobs.found_jobs import FoundJob, read
from closeknit.cli.jobs.told_pod import ToldPod


@dataclass(frozen=True)
class SeenJob:
    """One job at one moment. A notebook shows it as a table with its GPUs."""

    document: bytes
    """The TrainingJob as JSON."""
    pods: tuple[ToldPod, ...] | None = None
    """Of its present attempt, by name; None where they were not read, or may not be."""

    @cached_property
    def explanation(self) -> Explanation:
        """What `closeknit explain -o json` prints."""
        return explanation(FoundJob(read(self.document), self.pods))

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.explanation.name

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return self.explanation.namespace

    @property
    def state(self) -> str:
        """Queued, Starting, Running, Restarting, Suspended, Succeeded or Failed."""
        return self.explanation.state

    @property
    def reason(self) -> str | None:
        """What is wrong or waited for, in one word; None where all is well."""
        return self.explanation.reason

    @property
    def message(self) -> str | None:
        """The same in words."""
        return self.explanation.message

    @cached_property
    def ranks(self) -> tuple[RankLine, ...]:
        """The seat of each rank, by rank; empty while it holds no GPUs."""
        # The models of decisions take a third of a second to import, and a wait needs none.
        from closeknit.cli.ranks.seats import seats  # noqa: PLC0415
        from closeknit.cluster.booking.job import InvalidJob, job_from_builtins  # noqa: PLC0415

        job = job_from_builtins(msgspec.json.decode(self.document))
        if isinstance(job, InvalidJob):
            return ()
        try:
            return seats(job, self.pods, {}).items
        except NotThere:
            return ()

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        words = f": {self.message}" if self.message else ""
        return printable(f"{self.namespace}/{self.name}: {self.state}{why}{words}")

    def _repr_html_(self) -> str:
        from closeknit.client.job_page import page  # noqa: PLC0415 - a pipeline shows none

        return page(self.explanation, self.ranks)
