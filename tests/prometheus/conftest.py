"""Prometheus' own programs, which judge what we write for it."""

import pytest

from harness.prometheus import NoPrometheus, Programs, bring


@pytest.fixture(scope="session")
def programs() -> Programs:
    try:
        return bring()
    except NoPrometheus as reason:
        pytest.skip(str(reason))
