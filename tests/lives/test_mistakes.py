"""The lives can go wrong: mistakes that somebody could make in the operator are seen by them, within a few lives."""

from typing import Any

import pytest

from closeknit.cluster.cluster import Cluster
from closeknit.cluster.holders import holding
from closeknit.controller.sight import Sight
from closeknit.lifecycle import keep
from closeknit.lifecycle.attempt import Attempt
from lives.life import live

MOST = 24  # lives that a mistake may need before it is seen


def nothing_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A booking counts once it is seen, and not before."""
    monkeypatch.setattr(Cluster, "with_job", lambda self, _job: self)
    monkeypatch.setattr(Sight, "assume", lambda _self, _job: None)


def pods_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose booking is over holds nothing, though his Pods still run."""

    def of_bookings_alone(node: str, machine: Any, report: Any, bookings: Any, _pods: Any, claimed: Any) -> Any:
        return holding(node, machine, report, bookings, (), claimed)

    monkeypatch.setattr("closeknit.cluster.view.holding", of_bookings_alone)


def leftovers_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt's Pods are made at once."""
    monkeypatch.setattr(keep, "obstacles", lambda *_: ())


def a_claim_is_made_with_its_pod_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the operator died between the two, or the claim's create failed, none is made later."""
    monkeypatch.setattr(Attempt, "unclaimed", [])


@pytest.mark.parametrize(
    ("mistake", "words", "first"),
    [
        (nothing_is_assumed, "is given to two jobs", 1),
        (pods_hold_nothing, "is given to two jobs", 2),
        (leftovers_are_not_waited_for, "still has its GPUs", 2),
        (a_claim_is_made_with_its_pod_alone, "is booked and does not run", 3),
    ],
)
def test_a_mistake_is_seen(mistake: Any, words: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    seeds = iter((first, *range(1, MOST)))
    assert any(words in fault for seed in seeds for fault in live(seed).faults), "no life has gone wrong"
