"""The order in which jobs get their GPUs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import build
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.queue.entries import queue_place
from closeknit.scheduling.schedule import schedule
from scenarios.manifests import priority_class, training_job
from scenarios.story import NOW

EARLIER = "2026-11-21T09:00:00Z"
USUAL = priority_class("usual", 10, is_default=True)
HIGH = priority_class("high", 100)
LATER = "2026-11-21T09:30:00Z"
KEPT_FOR = {"reason": "InsufficientGPUs", "message": "", "since": EARLIER, "reservedSince": EARLIER}


def said(length: str) -> dict[str, str]:
    return {"expectedDuration": length}


def job(
    name: str,
    *,
    created: str | None = EARLIER,
    priority: str | None = None,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **place: str | int,
) -> dict[str, Any]:
    asked = {**({"priorityClassName": priority} if priority else {}), **(spec or {})}
    manifest = training_job(name, spec=asked or None, **(status or {}))
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
        pytest.param(
            [job("a", spec=said("2h")), job("b", created=LATER, spec=said("1h"))],
            ["team-b/b", "team-b/a"],
            id="the shorter goes first, though it came half an hour later",
        ),
        pytest.param(
            [job("a", spec=said("65m")), job("b", created=LATER, spec=said("1h"))],
            ["team-b/a", "team-b/b"],
            id="but not by so little",
        ),
        pytest.param(
            [job("a"), job("b", spec=said("31h")), job("c", created=LATER, spec=said("1h"))],
            ["team-b/c", "team-b/b", "team-b/a"],
            id="one that says nothing stands behind those that do",
        ),
        pytest.param(
            [job("a", spec={"activeDeadlineSeconds": 7200}), job("b", created=LATER, spec=said("1h"))],
            ["team-b/b", "team-b/a"],
            id="a deadline is as good as a declaration",
        ),
        pytest.param(
            [job("a", spec=said("87600h"), created="2026-11-15T09:29:00Z"), job("b", created=LATER, spec=said("1m"))],
            ["team-b/a", "team-b/b"],
            id="nobody is passed by those that come more than six days later",
        ),
        pytest.param(
            [job("a", spec=said("1m"), status={"cost": {"trainedSeconds": 6000}}), job("b", spec=said("1h"))],
            ["team-b/b", "team-b/a"],
            id="one that ran longer than it said has lost its place",
        ),
        pytest.param(
            [job("a", spec=said("5h"), status={"pending": KEPT_FOR}), job("b", spec=said("1m"))],
            ["team-b/a", "team-b/b"],
            id="nobody goes before one that room is kept for",
        ),
        pytest.param(
            [
                job("a", spec=said("5h"), status={"pending": KEPT_FOR, "observedGeneration": 1}, generation=2),
                job("b", spec=said("1m")),
            ],
            ["team-b/b", "team-b/a"],
            id="unless it asks for something else now",
        ),
        pytest.param(
            [job("a", spec=said("5h"), status={"pending": KEPT_FOR}), HIGH, job("b", priority="high")],
            ["team-b/b", "team-b/a"],
            id="but a higher priority",
        ),
    ],
)
def test_order(manifests: list[dict[str, Any]], expected: list[str]) -> None:
    objects = [from_document(manifest) for manifest in manifests]
    cluster = build([value for value in objects if value is not None])
    assert [str(key) for key in schedule(cluster, Tables(), Memory(), NOW)] == expected


@given(
    runs_s=st.integers(1, 10**7),
    trained=st.floats(0, 0.999),
    restarts=st.integers(0, 3),
    word=st.sampled_from(("expectedDuration", "activeDeadlineSeconds")),
)
def test_whoever_tells_the_truth_stands_no_later_than_if_it_said_nothing(
    runs_s: int, trained: float, restarts: int, word: str
) -> None:
    """However long it runs, and however far it had come before a restart."""
    cost = {"trainedSeconds": int(runs_s * trained), "restarts": restarts}
    truth = {word: f"{runs_s}s" if word == "expectedDuration" else runs_s}
    told, silent = (from_document(job("a", spec=spec, status={"cost": cost})) for spec in (truth, None))
    assert isinstance(told, TrainingJob)
    assert isinstance(silent, TrainingJob)
    cluster = build([told])
    assert queue_place(cluster, told) <= queue_place(cluster, silent)
