"""A log that is followed through reads that end anywhere: no line twice, and none lost."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.cli.input.given import Reach
from closeknit.cli.logs.log_lines import MOST_LINE_BYTES
from closeknit.cli.logs.log_position import LogPosition, LogRead, Stamp, stamped
from closeknit.cli.logs.log_reader import ANSWER_S, QUIET_S, LogsArguments, _Reader
from closeknit.cli.logs.log_sources import LogSource, LogSources
from closeknit.kube.errors import Invalid, Unauthorized, Unavailable
from faults import virtual_time

SECOND = 1_795_774_200  # 2026-11-27T10:10:00Z
PLACE = LogSource("a-0", "0", 0)
ZONES = {"Z": 0, "+02:00": 7200, "-05:30": -19800}


def dated(at: Stamp, words: bytes, zone: str = "Z", digits: int = 9) -> bytes:
    """A line as a kubelet writes it."""
    local = datetime.fromtimestamp(at[0], UTC) + timedelta(seconds=ZONES[zone])
    fraction = f"{at[1]:09d}"[:digits]
    return f"{local:%Y-%m-%dT%H:%M:%S}{'.' if fraction else ''}{fraction}{zone} ".encode() + words + b"\n"


def since(log: list[tuple[Stamp, bytes]], query: Mapping[str, Any]) -> bytes:
    """What a kubelet gives: all from that second on."""
    first = 0 if "sinceTime" not in query else (stamped(f"{query['sinceTime']} ".encode())[0] or (0, 0))[0]
    return b"".join(line for at, line in log if at[0] >= first)


def pieces_of(data: bytes, chance: random.Random) -> Iterator[bytes]:
    while data:
        size = chance.choice((1, 7, 100, 5000, MOST_LINE_BYTES + 9))
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("seed", range(60))
def test_reads_that_end_anywhere_give_the_log_once(seed: int) -> None:
    """Several lines of one time, times that go back a little, zones, and lines longer than a part."""
    chance = random.Random(seed)  # noqa: S311
    at, zone, log = [SECOND, 0], chance.choice(list(ZONES)), list[tuple[Stamp, bytes]]()
    for number in range(chance.randrange(1, 40)):
        at[1] += chance.choice((0, 0, 1, 400_000_000))
        if at[1] > 999_999_999:
            at = [at[0] + chance.choice((1, 1, 5)), chance.randrange(3)]
        words = b"%d " % number + b"y" * chance.choice((0, 0, 3, 80, MOST_LINE_BYTES - 40, 2 * MOST_LINE_BYTES + 3))
        stamp = (at[0], max(0, at[1] - chance.choice((0, 0, 0, 2))))
        log.append((stamp, dated(stamp, words, zone)))
    position, told, asked = LogPosition(), b"", 0
    for last in [False] * 30 + [True]:
        data = since(log, {"sinceTime": position.since} if position.since else {})
        if not last:
            data = data[: chance.randrange(len(data) + 1)]
        read = LogRead(position)
        for piece in pieces_of(data, chance):
            told += b"".join(each[:-1] for each in read.of(piece))
            asked += 1
        read.end()
    told += b"".join(each[:-1] for each in position.rest())
    assert told == b"".join(line.partition(b" ")[2][:-1] for _, line in log)


def test_a_log_that_was_cut_down_meanwhile_goes_on_with_what_is_new() -> None:
    """As by rotation: of the lines that were read none comes again."""
    position = LogPosition()
    first = LogRead(position)
    assert list(first.of(dated((SECOND, 1), b"a") + dated((SECOND, 2), b"b"))) == [b"a\n", b"b\n"]
    first.end()
    again = LogRead(position)
    assert list(again.of(dated((SECOND, 3), b"c"))) == [b"c\n"]
    again.end()
    assert list(LogRead(position).of(dated((SECOND, 3), b"c") + dated((SECOND, 4), b"d"))) == [b"d\n"]


def test_the_end_of_a_container_that_printed_no_line_break_comes_before_the_next_one() -> None:
    position = LogPosition()
    first = LogRead(position)
    assert list(first.of(dated((SECOND, 1), b"half")[:-1])) == []
    first.end()
    assert list(LogRead(position).of(dated((SECOND + 9, 0), b"next"))) == [b"half\n", b"next\n"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"2026-11-27T10:10:00.5Z words here", ((SECOND, 500_000_000), b"words here")),
        (b"2026-11-27T12:10:00.000000007+02:00 a", ((SECOND, 7), b"a")),
        (b"2026-11-27T10:10:00Z ", ((SECOND, 0), b"")),
        (b"2026-13-27T10:10:00Z a", (None, b"2026-13-27T10:10:00Z a")),
        (b"20 apples", (None, b"20 apples")),
        (b"", (None, b"")),
    ],
)
def test_a_dated_line(line: bytes, expected: tuple[Stamp | None, bytes]) -> None:
    assert stamped(line) == expected


class Job:
    """A job with one Pod, over at some time, whose log is what `pieces` gives."""

    def __init__(self, pieces: Callable[[Mapping[str, Any]], AsyncIterator[bytes]], over_s: float, tail: Any) -> None:
        self.told: list[str] = []
        self.asked: list[Mapping[str, Any]] = []
        self.over_s = over_s
        self._given = pieces
        asked = LogsArguments("a", (), False, True, tail, Reach(namespace="ml"))
        self.reader = _Reader(self, asked, self._put, self.told.append)  # type: ignore[arg-type]
        self.reader.places = self._places  # type: ignore[method-assign]

    async def pieces(self, _: str, query: Mapping[str, Any]) -> AsyncIterator[bytes]:
        self.asked.append(query)
        async for piece in self._given(query):
            yield piece

    async def _put(self, line: bytes) -> None:
        self.told.append(line.decode())

    async def _places(self, namespace: str) -> LogSources:
        del namespace
        state = "Running" if asyncio.get_running_loop().time() < self.over_s else "Succeeded"
        return LogSources(JobKey("ml", "a"), state, "", 1, (PLACE,), "")


def followed(
    pieces: Callable[[Mapping[str, Any]], AsyncIterator[bytes]], over_s: float = 60.0, tail: int | None = None
) -> tuple[Job, float]:
    """What came of it, and how many seconds it took."""

    async def story() -> tuple[Job, float]:
        job = Job(pieces, over_s, tail)
        async with asyncio.timeout(86400):
            await job.reader.follow("ml", PLACE, is_alone=True)
        return job, asyncio.get_running_loop().time()

    result: Awaitable[tuple[Job, float]] = story()
    return virtual_time.run(result)  # type: ignore[arg-type]


def test_a_connection_that_has_died_without_a_word_ends_no_follower() -> None:
    """It is asked again from where it was, and once the job is over what is left is read, and it ends."""
    log = [((SECOND, 1), dated((SECOND, 1), b"one"))]

    async def dead(query: Mapping[str, Any]) -> AsyncIterator[bytes]:
        yield since(log, query)
        if "follow" not in query:
            return
        log.append(((SECOND + len(log), 0), dated((SECOND + len(log), 0), b"after")))
        await asyncio.sleep(1e9)

    job, took_s = followed(dead, over_s=2.5 * QUIET_S)
    assert job.told == ["one\n", "after\n", "after\n", "after\n"]
    assert [query.get("sinceTime") for query in job.asked][:2] == [None, "2026-11-27T10:10:00Z"]
    assert took_s < 4 * QUIET_S


def test_a_way_that_is_dead_for_good_ends_with_the_job_and_says_so() -> None:
    async def dead(_: Mapping[str, Any]) -> AsyncIterator[bytes]:
        await asyncio.sleep(1e9)
        yield b""

    job, took_s = followed(dead)
    assert job.told == ["the end of the log of a-0 cannot be read"]
    assert took_s < 2 * QUIET_S + 4 * ANSWER_S


def test_what_comes_slowly_is_no_silence() -> None:
    async def slow(query: Mapping[str, Any]) -> AsyncIterator[bytes]:
        for number in range(5 if "sinceTime" not in query else 0):
            yield dated((SECOND + number, 0), b"%d" % number)
            await asyncio.sleep(QUIET_S - 1)

    job, _ = followed(slow)
    assert job.told == ["0\n", "1\n", "2\n", "3\n", "4\n"]
    assert len(job.asked) == 2


def test_what_is_printed_after_the_last_read_was_cut_off_is_read() -> None:
    log = [((SECOND, 1), dated((SECOND, 1), b"one"))]

    async def cut(query: Mapping[str, Any]) -> AsyncIterator[bytes]:
        yield since(log, query)
        if "follow" in query:
            log.append(((SECOND, 2), dated((SECOND, 2), b"two")))
            await asyncio.sleep(100)
            raise Unavailable("lost")

    assert followed(cut)[0].told == ["one\n", "the log of a-0 was cut off; asking again", "two\n"]


def test_a_tail_of_none_goes_on_with_what_comes_after() -> None:
    async def quiet(query: Mapping[str, Any]) -> AsyncIterator[bytes]:
        if query.get("tailLines") == 0:
            await asyncio.sleep(1e9)
        yield dated((SECOND, 1), b"new")

    job, _ = followed(quiet, tail=0)
    assert job.told == ["new\n"]
    assert "tailLines" not in job.asked[1] and job.asked[1]["sinceSeconds"] >= 1


def test_one_refused_login_ends_no_follower() -> None:
    refused = [Unauthorized("expired", code=401)]

    async def once(_: Mapping[str, Any]) -> AsyncIterator[bytes]:
        if refused:
            raise refused.pop()
        yield dated((SECOND, 1), b"one")

    assert followed(once)[0].told == ["the log of a-0 was cut off; asking again", "one\n"]


def test_a_request_that_is_wrong_is_told_and_not_asked_for_ever() -> None:
    async def wrong(_: Mapping[str, Any]) -> AsyncIterator[bytes]:
        raise Invalid("tailLines: must be greater than or equal to 0", code=422)
        yield b""

    with pytest.raises(Invalid, match="tailLines"):
        followed(wrong, over_s=3600)
