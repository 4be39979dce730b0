"""The order in which jobs get their GPUs."""

from typing import Any

import pytest

from closeknit.cluster.cluster import build
from closeknit.cluster.store.kinds import from_document
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.schedule import schedule
from scenarios.manifests import priority_class, training_job
from scenarios.story import NOW

EARLIER = "2026-11-21T09:00:00Z"
USUAL = priority_class("usual", 10, is_default=True)
HIGH = priority_class("high", 100)
LATER = "2026-11-21T09:30:00Z"


def job(name: str, *, created: str | None = EARLIER, priority: str | None = None, **place: str) -> dict[str, Any]:
    manifest = training_job(name, spec={"priorityClassName": priority} if priority else None)
    manifest["metadata"].update(place)
    if created is None:
        del manifest["metadata"]["creationTimestamp"]
    else:
        manifest["metadata"]["creationTimestamp"] = created
    return manifest


@pytest.mark.parametrize(
    ("manifests", "expected"),
    [
        pytest.param([job("b", created=LATER), job("a")], ["team-b/a", "team-b/b"], id="the older comes first"),
        pytest.param(
            [job("a"), HIGH, job("b", created=LATER, priority="high")], ["team-b/b", "team-b/a"], id="priority over age"
        ),
        pytest.param([job("b"), job("a")], ["team-b/a", "team-b/b"], id="of one age, the name decides"),
        pytest.param(
            [job("a", namespace="z"), job("b", namespace="y")], ["y/b", "z/a"], id="of one age, first the namespace"
        ),
        pytest.param([job("a", created=None), job("b", created=LATER)], ["team-b/b", "team-b/a"], id="without an age"),
        pytest.param([job("a"), job("b", priority="gone")], ["team-b/a", "team-b/b"], id="an unknown class"),
        pytest.param(
            [
                job("a", priority="low"),
                priority_class("low", 5),
                priority_class("usual", 10, is_default=True),
                job("b"),
            ],
            ["team-b/b", "team-b/a"],
            id="the global default counts for jobs that name no class",
        ),
    ],
)
def test_order(manifests: list[dict[str, Any]], expected: list[str]) -> None:
    objects = [from_document(manifest) for manifest in manifests]
    cluster = build([value for value in objects if value is not None])
    assert [str(key) for key in schedule(cluster, Tables(), Memory(), NOW)] == expected
