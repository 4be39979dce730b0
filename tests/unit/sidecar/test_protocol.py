"""What goes over the wire: sealed, in its order, bounded; and what a stranger says counts for nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeknit.sidecar.gang import protocol
from closeknit.sidecar.gang.protocol import Command, ForgedError, Order, Phase, Report
from closeknit.sidecar.gang.settings import Settings

KEY = bytes(range(32))
REPORT = Report(3, Phase.WAITING, 7, "a" * 32)
GIVEN = {"index": 1, "size": 2, "host": "train-a1-worker-00000.train-a1.ns.svc", "port": 29200, "key": KEY.hex()}


def test_what_was_sealed_is_read_again() -> None:
    mine, theirs = protocol.to_server(KEY, "s"), protocol.to_server(KEY, "s")
    for _ in range(3):
        assert protocol.report(theirs.opened(mine.seal(REPORT).rstrip(b"\n"))) == REPORT
    order = Order(Command.GO, 8, "a" * 32)
    line = protocol.to_client(KEY, "s").seal(order)
    assert protocol.order(protocol.to_client(KEY, "s").opened(line.rstrip(b"\n"))) == order
    assert len(line) < protocol.LONGEST_LINE


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(protocol.to_server(b"other" * 6, "s"), id="another gang's key"),
        pytest.param(protocol.to_server(KEY, "t"), id="another connection"),
        pytest.param(protocol.to_client(KEY, "s"), id="the other direction"),
    ],
)
def test_what_is_sealed_otherwise_is_forged(other: protocol.Seals) -> None:
    with pytest.raises(ForgedError):
        protocol.to_server(KEY, "s").opened(other.seal(REPORT).rstrip(b"\n"))


def test_a_line_is_good_once() -> None:
    line = protocol.to_server(KEY, "s").seal(REPORT).rstrip(b"\n")
    theirs = protocol.to_server(KEY, "s")
    theirs.opened(line)
    with pytest.raises(ForgedError):
        theirs.opened(line)


@given(st.binary(max_size=600))
def test_noise_is_forged(line: bytes) -> None:
    with pytest.raises(ForgedError):
        protocol.to_server(KEY, "s").opened(line)


@given(st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.lists(st.integers())), max_size=6))
def test_of_other_values_nothing_is_made(values: list[object]) -> None:
    for read in (protocol.report, protocol.order):
        try:
            read(values)
        except ForgedError:
            continue


def test_settings() -> None:
    settings = Settings.parse(json.dumps({**GIVEN, "finalCodes": [3]}))
    assert (settings.index, settings.key, settings.is_meeting_point) == (1, KEY, False)
    assert [code for code in range(5) if settings.is_final(code)] == [0, 3]
    named = Settings.parse(json.dumps({**GIVEN, "resetCodes": [3]}))
    assert [code for code in range(5) if named.is_final(code)] == [0, 1, 2, 4]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "{}", "[" * 4000, "x" * 5000]
    + [
        json.dumps({**GIVEN, field: value})
        for field, value in [
            ("index", 2),
            ("index", -1),
            ("index", "x"),
            ("size", 1 << 20),
            ("port", 0),
            ("port", 65536),
            ("key", ""),
            ("key", "zz"),
            ("finalCodes", 3),
        ]
    ],
)
def test_wrong_settings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="CLOSEKNIT_GANG"):
        Settings.parse(text)
