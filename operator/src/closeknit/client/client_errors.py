"""What a call of the client may raise: few types, each with words for a person."""

from closeknit.client.seen_job import SeenJob


class ClientError(Exception):
    """The cluster cannot be asked, or what it answers cannot be used. `str()` says why and what to do."""


class NoSuchJob(ClientError):  # noqa: N818 - a plain fact
    """There is no job of that name, or it is gone."""


class JobRefused(ClientError):  # noqa: N818 - so
    """The job is not accepted: by closeknit's own checks, or by the API server."""


class JobFailed(ClientError):  # noqa: N818 - so
    """The job has ended in failure."""

    def __init__(self, job: SeenJob) -> None:
        super().__init__(str(job))
        self.job = job
        self.reason = job.reason
        """In one word, as docs/reference/names.md has it; None where it says none."""
        self.message = job.message


class WaitTimeout(ClientError, TimeoutError):  # noqa: N818 - so
    """The job is not that far in time. It goes on: only the wait has ended."""

    def __init__(self, words: str, job: SeenJob | None) -> None:
        super().__init__(words)
        self.job = job
        """As it was seen last; None where the cluster has not answered."""
