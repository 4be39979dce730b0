"""The table of pending reasons is closed."""

from closeknit.api.reasons import PendingReason
from closeknit.lifecycle.status.pending import PENDING, Trait, traits


def test_every_reason_has_its_row() -> None:
    assert set(PENDING) == set(PendingReason)


def test_what_placement_waits_for_is_of_placement_and_pauses_grow() -> None:
    assert all(row.is_of_placement for row in PENDING.values() if row.is_for_room)
    assert all(row.first_pause_s <= row.longest_pause_s for row in PENDING.values())


def test_of_a_reason_of_another_version_nothing_is_known() -> None:
    assert traits(None) == traits("Later") == Trait()
