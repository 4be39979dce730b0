"""Room that is kept for a job which waits with patience, and for those behind it, over a virtual clock."""

from collections.abc import Sequence

from closeknit.simulation.operated import Operated
from closeknit.simulation.replay import replay
from closeknit.simulation.submission import Submission
from scenarios.manifests import Manifest
from scenarios.traces import BEGINS, h200s, spec

Job = tuple[int, int, int] | tuple[int, int, int, str]
"""When it is submitted, how long it runs (seconds) and declares so, or below 0 declares nothing, GPUs, and its patience
for a rack."""


def submitted(jobs: Sequence[Job]) -> list[Submission]:
    made: list[Submission] = []
    for number, (at_s, run_s, gpus, *patience) in enumerate(jobs):
        topology: Manifest = {"fabric": {"preferred": "rack", "patience": patience[0]}} if patience else {}
        asked = spec(gpus, **topology)
        declared = asked.model_copy(update={"expected_duration": f"{run_s}s" if run_s > 0 else None})
        made.append(Submission(number, at_s, abs(run_s), declared))
    return made


def began_s(jobs: Sequence[Job], *racks: str) -> dict[int, float]:
    """When each job begins."""
    moments = replay(submitted(jobs), Operated(h200s(*racks), BEGINS))
    return {job.number: moment.now_s for moment in moments for job in moment.began}


def told_s(number: int, jobs: Sequence[Job], *racks: str) -> list[float]:
    """The moments that a job is told, one after the other."""
    queue, told = Operated(h200s(*racks), BEGINS), list[float]()
    for _ in replay(submitted(jobs), queue):
        if queue.reserved is not None and queue.reserved[0].number == number and queue.reserved[1].at is not None:
            at_s = (queue.reserved[1].at - BEGINS).total_seconds()
            told += [] if told[-1:] == [at_s] else [at_s]
    return told


def test_nobody_who_passes_tears_a_job_that_will_have_a_whole_machine() -> None:
    """Without it half of the second machine goes to the last, and the one before it waits half an hour for another."""
    jobs: list[Job] = [(0, 20_000, 8), (1, 20_000, 4), (2, 300, 4), (2, 300, 4), (4, 600, 8), (5, 20_000, 4)]
    assert began_s(jobs, "a1", "a2", "b1")[4] == 302


def test_room_at_another_level_is_not_kept_for_hours_of_patience() -> None:
    """The fifth could have a torn room after five hours, and waits for a rack for three more."""
    jobs: list[Job] = [(0, 36_000, 8), (1, 240, 8), (2, 36_000, 8), (3, 18_000, 8), (60, 3600, 16, "8h")]
    assert began_s([*jobs, (61, 72_000, 8)], "a1", "a1", "b1", "b1")[5] == 241


def test_a_job_keeps_its_rack_that_comes_free_a_moment_after_it_would_fit_torn() -> None:
    """What comes free at 602 s is told for 660 s, so that a job until 655 s passes."""
    jobs: list[Job] = [(0, 18_000, 6), (1, 600, 8), (1, 299, 2), (2, 600, 6), (10, 60, 16, "2h"), (20, 18_000, 8)]
    assert began_s([*jobs, (250, 405, 1)], "b2", "a1", "a1")[4] == 655


def test_a_gang_that_was_told_when_it_starts_does_not_give_way_to_those_behind_it() -> None:
    """It is too large for a rack, and those that wait behind its reservation are a crowd."""
    jobs: list[Job] = [(0, 240, 8), (1, 36_000, 8), (2, 240, 8), (3, 2400, 8), (60, 3600, 24, "1h")]
    jobs += [(61 + number, 72_000, 8) for number in range(5)]
    assert began_s(jobs, "a1", "a1", "a2", "b1")[4] == 2403


def test_nobody_behind_a_patient_job_has_room_kept_that_it_takes_once_its_patience_is_over() -> None:
    """It fits over three machines at once, and waits for one for half an hour. The gang behind it needs all three, and
    would stand before it from then on."""
    jobs: list[Job] = [(0, 20_000, 5), (1, 20_000, 5), (2, 20_000, 5), (3, 25_000, 8), (20, 36_000, 24)]
    assert began_s(jobs, "a1", "a1", "a1")[3] == 1803


def test_nor_has_one_behind_a_job_that_will_be_patient_for_hours() -> None:
    jobs: list[Job] = [(0, 1000, 8), (1, 20_000, 8), (2, 90, 1), (10, 14_000, 16, "2h"), (20, 36_000, 24)]
    assert began_s(jobs, "a1", "b1", "a1") == {0: 0, 1: 1, 2: 2, 3: 7210, 4: 21_210}


def test_who_leaves_a_patient_job_its_turn_has_a_reservation() -> None:
    """The patient one is over before, by its own word."""
    jobs: list[Job] = [(0, 20_000, 5), (1, 20_000, 5), (2, 20_000, 5), (3, 7000, 8), (20, 36_000, 24)]
    assert told_s(4, jobs, "a1", "a1", "a1")[0] == 20_040
    assert began_s(jobs, "a1", "a1", "a1")[4] == 20_002


def test_what_a_job_that_will_be_torn_is_told_stays() -> None:
    """Its half hour begins once it fits, which is up to three quarters of the others' time later than they declare."""
    jobs: list[Job] = [(0, 90_000, 5), (1, 90_000, 5), (2, 7200, 3), (3, 7200, 3), (10, 600, 6)]
    assert told_s(4, jobs, "a1", "a2") == [9060]
    assert began_s(jobs, "a1", "a2")[4] == 9003


def test_who_fits_and_is_patient_gets_no_room_kept_by_what_is_remembered_of_it() -> None:
    """It was refused for want of room a decision ago; the last one takes what is free."""
    jobs: list[Job] = [(0, 1000, 8, "0s"), (1, 20_000, 2), (2, 1100, 4), (10, 8000, 4, "0s")]
    jobs += [(900, 60, 6, "50m"), (901, 4000, 6, "0s")]
    assert began_s(jobs, "a1", "a2")[5] == 1000


def test_who_ends_before_the_patience_of_a_job_is_over_passes_in_the_room_that_is_kept_for_it() -> None:
    jobs: list[Job] = [(0, 1000, 8), (1, 20_000, 8), (2, 90, 1), (10, 14_000, 16, "50m"), (30, 2000, 8)]
    began = began_s(jobs, "a1", "b1", "a1")
    assert (began[3], began[4]) == (3010, 92)


def test_nothing_is_kept_for_who_has_waited_long_and_is_patient_for_longer_than_an_hour() -> None:
    """Nobody says when he ends. The first of the last ones starts as soon as a machine is free."""
    jobs: list[Job] = [(0, -50_000, 8), (1, -200_000, 8), (2, -70_000, 8), (3, -200_000, 8), (60, 600, 16, "36h")]
    jobs += [(100 + number, -200_000, 8) for number in range(2)]
    began = began_s(jobs, "a1", "a1", "b1", "b1")
    assert (began[5], began[6]) == (50_000, 70_002)


def test_nobody_who_passes_delays_a_job_that_will_wait_half_an_hour_in_its_torn_room() -> None:
    """It was told 9900 s: half an hour after its room is free. More has ended by then than when that is free."""
    jobs: list[Job] = [(0, 7200, 3), (0, 2400, 8), (0, 2400, 8), (600, 90_000, 3), (1200, 7200, 3), (1400, 1500, 2)]
    jobs += [(2000, 90_000, 2), (2200, 90_000, 8), (2201, 2400, 3), (2801, 600, 8), (2808, 90_000, 2)]
    assert told_s(9, jobs, "b2", "a1", "a1")[0] == 9900
    assert began_s(jobs, "b2", "a1", "a1")[9] <= 9900


def test_room_that_was_kept_to_the_minute_stays_once_it_is_free() -> None:
    """That is an hour and five seconds before its patience is over, and was reckoned from the next full minute."""
    jobs: list[Job] = [(0, 3605, 8), (1, 20_000, 8), (2, 90, 1), (10, 14_000, 16, "2h"), (3700, 20_000, 8)]
    assert began_s(jobs, "a1", "b1", "a1")[3] == 7210
