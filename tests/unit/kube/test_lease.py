"""The Lease of a leader, as one candidate sees it: who may write when, and with which epoch. On readings of a clock."""

from typing import Any

import pytest

from closeknit.kube.lease import (
    LAST_EPOCH,
    LEASE_S,
    LONGEST_S,
    RENEW_DEADLINE_S,
    Abdicate,
    Candidate,
    StandBy,
    Write,
    lease,
)

ME, OTHER = "me", "other"


def stored(holder: str, version: str = "7", **spec: Any) -> Any:
    given = {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3, "renewTime": "1"}
    return lease({"metadata": {"resourceVersion": version}, "spec": {**given, **spec}})


def test_a_lease_that_is_not_there_is_created_and_a_released_one_taken_at_once() -> None:
    assert Candidate(ME).looked(None, 5.0).next(5.0, 0) == Write("", 1)
    assert Candidate(ME).looked(stored(""), 5.0).next(5.0, 0) == Write("7", 4)


def test_a_held_one_runs_out_by_the_clock_of_who_looks_from_when_he_saw_it_first() -> None:
    first = Candidate(ME).looked(stored(OTHER), 100.0)
    again = first.looked(stored(OTHER, version="9", leaseTransitions=3), 114.0)  # another label, no other claim
    assert first.next(100.0, 0) == StandBy(100.0 + LEASE_S)
    assert again.next(114.9, 0) == StandBy(115.0)
    assert again.next(115.0, 0) == Write("9", 4)
    assert again.looked(stored(OTHER, renewTime="2"), 114.95).next(115.0, 0) == StandBy(114.95 + LEASE_S)


@pytest.mark.parametrize(
    ("duration", "length_s"),
    [(1, LEASE_S), (-4, LEASE_S), (30, 30.0), (10**9, LONGEST_S), ("15", LEASE_S), (None, LEASE_S), ([], LEASE_S)],
)
def test_what_a_lease_says_of_its_duration_counts_within_bounds(duration: object, length_s: float) -> None:
    assert Candidate(ME).looked(stored(OTHER, leaseDurationSeconds=duration), 0.0).next(0.0, 0) == StandBy(length_s)


def test_a_deleted_one_counts_as_held_by_who_had_it_until_it_would_have_run_out() -> None:
    gone = Candidate(ME).looked(stored(OTHER), 0.0).looked(None, 1.0)
    assert gone.next(1.0, 0) == StandBy(LEASE_S)
    assert gone.next(LEASE_S, 0) == Write("", 1)


@pytest.mark.parametrize(
    ("transitions", "booked", "epoch"),
    [
        (3, 0, 4),
        (3, 9, 10),
        (0, 9, 10),
        (-1, 0, 1),
        ("many", 2, 3),
        (2**31 - 1, 2, 3),
        (5, 2**40, 6),
        (LAST_EPOCH, 0, LAST_EPOCH + 1),
    ],
)
def test_an_epoch_is_higher_than_all_before_it(transitions: object, booked: int, epoch: int) -> None:
    """leaseTransitions is an int32: what nobody of ours can have written must not keep everybody out."""
    seen = Candidate(ME).looked(stored("", leaseTransitions=transitions), 0.0)
    assert seen.next(0.0, booked) == Write("7", epoch)


def test_it_leads_from_the_begin_of_an_answered_write_to_the_deadline() -> None:
    leader = Candidate(ME).looked(stored(""), 0.0).wrote(stored(ME, "8"), 4, began=1.0, now=3.0)
    assert leader.next(5.0, 0) == Write("8", 4)
    assert [leader.leads(moment) for moment in (10.9, 11.0)] == [True, False]
    assert isinstance(leader.next(1.0 + RENEW_DEADLINE_S, 0), Abdicate)
    assert leader.next(5.0, 12) == Write("8", 12)  # what somebody else has booked with


@pytest.mark.parametrize("holder", [OTHER, ""])
def test_one_that_another_holds_is_lost(holder: str) -> None:
    leader = Candidate(ME).wrote(stored(ME, "8"), 4, began=0.0, now=0.0).looked(stored(holder, "9"), 2.0)
    assert isinstance(leader.next(2.0, 0), Abdicate)


def test_a_deleted_one_is_made_again_by_who_leads() -> None:
    leader = Candidate(ME).wrote(stored(ME, "8"), 4, began=0.0, now=0.0).looked(None, 2.0)
    assert leader.next(2.0, 0) == Write("", 4)


def test_a_write_whose_answer_was_lost_makes_no_leader() -> None:
    unsure = Candidate(ME).looked(stored(ME), 5.0)
    assert not unsure.leads(5.0)
    assert unsure.next(5.0, 0) == Write("7", 4)


@pytest.mark.parametrize("document", [{}, {"metadata": None, "spec": 3}, {"metadata": [], "spec": {"renewTime": {}}}])
def test_an_odd_lease_is_one_that_nobody_holds(document: dict[str, Any]) -> None:
    assert lease(document).claim == ("", 0, "", "")
