"""Which words jobs that wait are told now: bounded in every minute, in turn, and in the end all of them."""

import random
from datetime import datetime, timedelta

import pytest

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import EventAction, PendingReason
from closeknit.cluster.job_volumes import NO_VOLUMES
from closeknit.lifecycle.verdict import Refusal, Wait, WaitCause
from closeknit.lifecycle.writes.answers import Answers
from closeknit.lifecycle.writes.plan import Notice, Plan, Telling
from closeknit.scheduling.memo.message_rate import ToldWords, WantedWords, allot
from closeknit.scheduling.queue.entries import QueueEntry
from scenarios.manifests import training_job
from scenarios.story import NOW

MINUTE = timedelta(minutes=1)
JOB = TrainingJob.parse(training_job())
NOTICE = Notice("e", PendingReason.INSUFFICIENT_GPUS, EventAction.QUEUE, "full")


def wanted(
    number: int,
    namespace: str = "a",
    *,
    telling: Telling = Telling.NEWS,
    since: datetime = NOW,
    told_at: datetime | None = None,
) -> WantedWords:
    key = JobKey(namespace, f"w{number:03d}")
    place = (0, True, False, 0.0, "", *key)
    verdict = Wait(Refusal(WaitCause.NO_FIT, PendingReason.INSUFFICIENT_GPUS, "full"))
    entry = QueueEntry(key, key.name, JOB, place, (), Answers(told_at=told_at), NO_VOLUMES, None, None, verdict)
    notice = NOTICE if telling is Telling.NEWS else None
    return WantedWords(entry, Plan(key, key.name, "1", 1, 1, notice=notice, telling=telling), since)


def names(entries: tuple[QueueEntry, ...]) -> list[str]:
    return [f"{entry.key.namespace}/{entry.key.name}" for entry in entries]


def test_news_come_in_the_queue_s_order_and_before_what_was_told_the_longest_ago() -> None:
    asked = [
        wanted(0, telling=Telling.AGAIN, told_at=NOW - MINUTE),
        wanted(1, telling=Telling.AGAIN, told_at=NOW - 2 * MINUTE),
        wanted(3),
        wanted(2),
    ]
    assert names(allot(asked, (), NOW).entries) == ["a/w002", "a/w003", "a/w001", "a/w000"]


def test_namespaces_take_turns() -> None:
    asked = [wanted(number) for number in range(20)] + [wanted(0, "z"), wanted(1, "z")]
    assert names(allot(asked, (), NOW).entries) == ["a/w000", "z/w000", "a/w001", "z/w001", "a/w002"]


def test_one_namespace_leaves_room_for_another() -> None:
    first = allot([wanted(number) for number in range(20)], (), NOW)
    assert names(first.entries) == ["a/w000", "a/w001", "a/w002", "a/w003"]
    assert names(allot([wanted(9), wanted(0, "z")], first.told, NOW + MINUTE / 2).entries) == ["z/w000"]


@pytest.mark.parametrize("seed", range(3))
def test_words_that_change_and_change_again_are_bounded_and_those_that_stay_are_told_to_all(seed: int) -> None:
    """600 jobs of five namespaces, one of which has most of them. For five minutes their words change every few
    seconds, and then no more. Every job comes back when it was told to."""
    chance = random.Random(seed)  # noqa: S311 - a test that can be repeated
    spaces = [chance.choice("aaaaaaaabcde") for _ in range(600)]
    told: tuple[ToldWords, ...] = ()
    record: dict[int, ToldWords] = {}
    told_at: dict[int, datetime] = {}
    comes_up: dict[int, datetime] = {}
    since, changes_after_s = NOW, 0.0
    for second in range(1500):
        now = NOW + timedelta(seconds=second)
        if changes_after_s <= second < 300:
            since, comes_up = now, dict.fromkeys(range(600), now)
            changes_after_s = second + chance.uniform(1, 8)
        due = [number for number, moment in comes_up.items() if moment <= now]
        asked = [
            wanted(
                number,
                spaces[number],
                telling=Telling.AGAIN if number in told_at else Telling.NEWS,
                since=since,
                told_at=told_at.get(number),
            )
            for number in due
        ]
        found = allot(asked, told, now)
        told = found.told
        record |= {id(each): each for each in told}
        for entry in found.entries:
            number = int(entry.key.name[1:])
            told_at[number] = now
            del comes_up[number]
        for entry, moment in found.later:
            assert moment > now
            comes_up[int(entry.key.name[1:])] = moment
    assert not comes_up, "never told"
    assert set(told_at) == set(range(600))
    every = list(record.values())
    assert not any(each.are_lasting for each in every if each.at < NOW + 5 * MINUTE)
    for first in every:
        minute = [each for each in every if first.at <= each.at < first.at + MINUTE]
        changed = [each for each in minute if not each.are_lasting]
        assert sum(each.writes for each in changed) <= 10
        assert sum(each.writes for each in changed if each.namespace == first.namespace) <= 8
        soon = first.at + timedelta(seconds=10)
        assert sum(each.writes for each in minute if each.are_lasting and each.at < soon) <= 10
