"""How a watch is read: in few pieces while events come one by one, and at once after a silence."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from closeknit.kube.http.stream import FIRST_REST_S, LITTLE_BYTES, LONGEST_REST_S, line_batches
from faults import virtual_time


class Wire:
    """A response whose bytes come at given seconds; what comes while its transport is paused comes together."""

    def __init__(self, *chunks: tuple[float, bytes], is_connected: bool = True) -> None:
        self.chunks = chunks
        self.content = self
        self.connection = SimpleNamespace(transport=self) if is_connected else None
        self.pauses: list[tuple[str, float]] = []

    def pause_reading(self) -> None:
        self.pauses.append(("pause", asyncio.get_running_loop().time()))

    def resume_reading(self) -> None:
        self.pauses.append(("resume", asyncio.get_running_loop().time()))

    async def iter_any(self) -> AsyncIterator[bytes]:
        time = asyncio.get_running_loop().time
        left = list(self.chunks)
        while left:
            await asyncio.sleep(max(0.0, left[0][0] - time()))
            here = [chunk for at, chunk in left if at <= time()]
            del left[: len(here)]
            yield b"".join(here)


def read(wire: Any) -> list[tuple[float, list[bytes]]]:
    """The batches, each with the second when it was given."""

    async def main() -> list[tuple[float, list[bytes]]]:
        time = asyncio.get_running_loop().time
        return [(time(), lines) async for lines in line_batches(wire)]

    return virtual_time.run(main())


def test_events_that_come_one_by_one_are_read_together() -> None:
    wire = Wire(*((number / 100, b"%d\n" % number) for number in range(1, 101)))
    batches = read(wire)
    assert [line for _, lines in batches for line in lines] == [b"%d" % number for number in range(1, 101)]
    pauses = [later - earlier for (earlier, _), (later, _) in pairwise(batches)]
    assert pauses[0] == pytest.approx(FIRST_REST_S), "nor late, as long as nobody knows that more comes"
    assert len(batches) <= 4 + 1 / LONGEST_REST_S, "not one for each"


def test_an_event_after_a_silence_is_read_at_once() -> None:
    assert read(Wire((1.0, b"a\n"), (2.0, b"b\n"))) == [(1.0, [b"a"]), (2.0, [b"b"])]


def test_after_a_silence_rests_are_short_again() -> None:
    busy = [(number / 100, b"a\n") for number in range(1, 101)]
    told = [at for at, _ in read(Wire(*busy, (3.0, b"b\n"), (3.001, b"c\n")))]
    assert told[-2:] == [3.0, pytest.approx(3.0 + FIRST_REST_S)]


def test_whoever_has_much_to_read_does_not_rest() -> None:
    large = b"x" * LITTLE_BYTES
    assert read(Wire((1.0, large), (1.001, b"\n"), (1.002, large + b"\n"), (1.003, b"b\n"))) == [
        (1.001, [large]),
        (1.001 + FIRST_REST_S, [large, b"b"]),
    ]
    assert [at for at, _ in read(Wire((1.0, large + b"\n"), (1.001, b"b\n")))] == [1.0, 1.001]


def test_of_an_event_that_is_not_whole_the_rest_is_read_at_once() -> None:
    assert read(Wire((1.0, b"a"), (1.001, b"b\n"))) == [(1.001, [b"ab"])]


def test_the_connection_is_not_read_meanwhile() -> None:
    wire = Wire((1.0, b"a\n"))
    read(wire)
    assert wire.pauses == [("pause", 1.0), ("resume", pytest.approx(1.0 + FIRST_REST_S))]


def test_a_connection_that_has_ended_is_read_to_its_end() -> None:
    wire = Wire((1.0, b"a\n"), (1.001, b"b\n"), is_connected=False)
    assert read(wire) == [(1.0, [b"a"]), (1.001, [b"b"])]
