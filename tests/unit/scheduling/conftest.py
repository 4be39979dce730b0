"""What tests of whole decisions share."""

import pytest


@pytest.fixture
def no_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours fails the test, and is not told to the job."""
    monkeypatch.setattr("closeknit.scheduling.schedule.guarded", lambda run, *rest: run(*rest))
