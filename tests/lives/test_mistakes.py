"""The lives can go wrong: mistakes that somebody could make in the operator are seen by them, within a few lives."""

from typing import Any

import pytest

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import EndReason
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.holders import holding
from closeknit.controller.in_flight import Pace
from closeknit.controller.watched_cluster import WatchedCluster
from closeknit.lifecycle import running_gang
from closeknit.lifecycle.attempt.own_gpus import with_own_gpus_free
from closeknit.lifecycle.failures.kept_shares import marked
from closeknit.lifecycle.health import attempt_end, in_place
from closeknit.lifecycle.restart.restart_decision import Fails, StartsAgain
from closeknit.lifecycle.transitions import runs
from closeknit.scheduling.policy import replace_lost_nodes
from lives.life import live

SEEDS = (5, 68, 144, 405, 1001, *range(1, 32))  # of lives; the first five show soon what hardly any other does


def nothing_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A booking counts once it is seen, and not before."""
    monkeypatch.setattr(Cluster, "with_job", lambda self, _job: self)
    monkeypatch.setattr(WatchedCluster, "assume", lambda _self, _job: None)


def pods_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose booking is over holds nothing, though his Pods still run."""

    def of_bookings_alone(machine: Any, report: Any, bookings: Any, _pods: Any, claimed: Any) -> Any:
        return holding(machine, report, bookings, (), claimed)

    monkeypatch.setattr("closeknit.cluster.node.view.holding", of_bookings_alone)


def leftovers_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt's Pods are made at once."""
    monkeypatch.setattr(running_gang, "leftovers", lambda *_: ())


def nobody_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that cannot be scheduled is waited for, whatever the scheduler says."""
    monkeypatch.setattr(running_gang, "unschedulable", lambda *_: None)


def limits_are_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang starts again however often it has failed."""
    monkeypatch.setattr(attempt_end, "judge", lambda *_: StartsAgain(charged=True, words=""))


def every_failure_ends_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its restart policy says."""
    monkeypatch.setattr(attempt_end, "judge", lambda *_: Fails(EndReason.POD_FAILED, ""))


def nobody_counts_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang that has begun again in its Pods is the one that it was."""
    monkeypatch.setattr(in_place, "restarted", lambda *_: None)


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (nothing_is_assumed, "is given to two jobs"),
        (pods_hold_nothing, "is given to two jobs"),
        (leftovers_are_not_waited_for, "still has its GPUs"),
        (nobody_gives_up, "is booked and does not run"),
        (limits_are_for_others, "times within its window"),
        (every_failure_ends_its_job, "has failed with"),
        (nobody_counts_runs, "of its Pods, and told to be in"),
    ],
)
def test_a_mistake_is_seen(mistake: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    lives = (live(seed) for seed in SEEDS)
    assert any(words in fault for life in lives for fault in life.faults), "no life has gone wrong"


def test_traces_of_a_growth_that_was_taken_back_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time up to the growth counts twice."""
    monkeypatch.setattr(runs, "before_end", lambda status, *_: status.cost)
    assert any("takes its growth back" in fault for fault in live(5, grows=True).faults)


def test_haste_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang's own Pods of before count as others where it looks whether it has lost a node, and not where it looks for
    another one: it is booked and taken back fifty times a second."""
    seen: list[Cluster] = []

    def own_free(job: TrainingJob, pods: Any, cluster: Cluster) -> Cluster:
        seen[:] = [cluster]
        return with_own_gpus_free(job, pods, cluster)

    monkeypatch.setattr(replace_lost_nodes, "with_own_gpus_free", own_free)
    monkeypatch.setattr(replace_lost_nodes, "marked", lambda job, shares, _, now: marked(job, shares, seen[0], now))
    assert any("writes of one job in a row" in fault for fault in live(12, grows=True).faults)
    monkeypatch.setattr(Pace, "count_plan", lambda *_: 0.0)
    assert any("calls in the minute" in fault for fault in live(12, grows=True).faults)
