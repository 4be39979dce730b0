"""Hangs by NCCL's RAS: from recorded answers, and from invented ones that no recording has."""

import json
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeknit.sidecar.hang import BEHIND_FOR_S, SILENT_FOR_S, STILL_FOR_S, Hang, Witness, hang
from closeknit.sidecar.ras import Communicator, NoReport, RankId, RasAnswer, Report, asked, parsed

RECORDED = Path(__file__).parents[2] / "fixtures" / "ras"


def answers(name: str) -> list[tuple[float, Report]]:
    """(second, report) of the recorded answers in JSON."""
    recorded = json.loads((RECORDED / name).read_text())
    read = ((entry["at"], parsed(entry["text"])) for entry in recorded if entry.get("text", "").startswith("{"))
    return [(at_s, answer.report) for at_s, answer in read if answer is not None]


def rank(number: int, host: str = "10.0.0.1") -> RankId:
    return RankId(number, host, 100 + number, number)


def report(*counts: int | None, key: str = "world", first: int = 0) -> Report:
    """One communicator whose ranks have called so many collectives; None for one that does not answer."""
    ranks = [rank(first + position) for position in range(len(counts))]
    told = {each: {"AllReduce": count} for each, count in zip(ranks, counts, strict=True) if count is not None}
    missing = frozenset(each for each, count in zip(ranks, counts, strict=True) if count is None)
    return (Communicator(key, len(counts), told, missing),)


def watched(*reports: tuple[float, Report]) -> Witness:
    witness = Witness()
    for at_s, each in reports:
        witness = witness.after(each, at_s)
    return witness


def test_every_recorded_report_is_read_though_nccl_leaves_out_a_comma() -> None:
    for name in ("2-ranks-nccl-2.28.9.json", "2-ranks-nccl-2.28.9-second.json"):
        texts = [
            entry["text"] for entry in json.loads((RECORDED / name).read_text()) if entry.get("text", "")[:1] == "{"
        ]
        assert len(texts) == len(answers(name)) > 10
        assert any(text for text in texts if not _is_json(text)), "the recording has the broken form"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_the_recorded_stopped_rank_is_named_and_pauses_are_not() -> None:
    told: list[tuple[float, Hang]] = []
    witness = Witness()
    for at_s, each in answers("2-ranks-nccl-2.28.9.json"):
        witness = witness.after(each, at_s)
        if (found := hang(witness, at_s)) is not None:
            told.append((at_s, found))
    # The recording has two answers while rank 1 is stopped, 5 and 15 s after; asked on, it is told after 35.
    assert told == []
    stopped = [each for each in answers("2-ranks-nccl-2.28.9.json") if each[0] <= 43.0]
    found = hang(watched(*stopped), 33.0 + SILENT_FOR_S)
    assert found is not None
    assert [each.rank for each in found.ranks] == [1]
    assert found.is_silent


@pytest.mark.parametrize("paused_s", [30.0, 240.0, 3600.0])
def test_equal_counts_that_stand_still_are_a_pause(paused_s: float) -> None:
    steps = [(float(at_s), report(at_s, at_s)) for at_s in range(10)]
    pause = [(10.0 + at_s, report(10, 10)) for at_s in range(0, int(paused_s), 5)]
    assert hang(watched(*steps, *pause), 10.0 + paused_s) is None


def test_a_rank_that_does_not_answer_beside_counts_that_stand_still_is_named_within_a_minute() -> None:
    steps = [(float(at_s), report(at_s, at_s, at_s, at_s)) for at_s in range(10)]
    silent = [(10.0 + at_s, report(11, 11, None, 11)) for at_s in range(0, 60, 5)]
    heard = [hang(watched(*steps, *silent[:number]), silent[number - 1][0]) for number in range(1, len(silent) + 1)]
    first = next(position for position, each in enumerate(heard) if each is not None)
    assert silent[first][0] - 10.0 <= 45.0
    assert heard[first] == Hang((rank(2),), is_silent=True, still_s=heard[first].still_s)  # type: ignore[union-attr]
    assert all(each is not None for each in heard[first:])


def test_a_rank_called_dead_while_counts_rise_is_alive_and_a_later_pause_is_no_hang() -> None:
    steps = [(float(at_s), report(at_s, at_s)) for at_s in range(10)]
    stopped = [(10.0 + at_s, report(10, None)) for at_s in range(0, 100, 5)]
    assert hang(watched(*steps, *stopped), 110.0) is not None
    back = [(115.0 + at_s, report(10 + at_s, None)) for at_s in range(1, 60)]
    assert hang(watched(*steps, *stopped, *back), 175.0) is None
    pause = [(180.0 + at_s, report(69, None)) for at_s in range(0, 400, 5)]
    assert hang(watched(*steps, *stopped, *back, *pause), 580.0) is None


def test_two_halves_that_call_each_other_dead_are_put_together() -> None:
    steps = [(float(at_s), report(at_s, at_s)) for at_s in range(10)]
    pause = [(10.0 + at_s, report(10, None) if at_s % 10 else report(None, 10)) for at_s in range(0, 300, 5)]
    assert hang(watched(*steps, *pause), 310.0) is None


def test_a_checkpoint_of_one_rank_that_the_others_wait_for_is_told_only_after_the_deadline() -> None:
    steps = [(float(at_s), report(at_s, at_s)) for at_s in range(10)]
    saving = [(10.0 + at_s, report(10, 9)) for at_s in range(0, 600, 5)]
    short = [each for each in saving if each[0] < BEHIND_FOR_S]
    assert hang(watched(*steps, *short), short[-1][0]) is None
    found = hang(watched(*steps, *saving), saving[-1][0])
    assert found is not None
    assert (found.ranks, found.is_silent) == ((rank(1),), False)
    assert hang(watched(*steps, *short), short[-1][0], behind_for_s=60.0) is not None, "the job's own deadline"


def test_who_waits_in_another_communicator_is_not_to_blame() -> None:
    # 0 and 1 share one communicator, 1 and 2 another: 2 holds up 1, and 1 holds up 0.
    still = report(5, 4, key="a") + report(7, 6, key="b", first=1)
    assert [each.rank for each in _late(still)] == [2]


def _late(still: Report) -> tuple[RankId, ...]:
    found = hang(watched((0.0, still), (BEHIND_FOR_S, still)), BEHIND_FOR_S)
    assert found is not None
    return found.ranks


def test_a_communicator_that_is_no_longer_used_hangs_nothing_up() -> None:
    seen = [(float(at_s), report(3, 2, key="old") + report(at_s, at_s)) for at_s in range(0, 2000, 5)]
    assert hang(watched(*seen), 2000.0) is None


def test_nothing_is_said_before_the_first_collective() -> None:
    seen = [(float(at_s), report(0, None)) for at_s in range(0, 900, 5)]
    assert hang(watched(*seen), 900.0) is None


def test_an_nccl_that_has_no_json_tells_its_version_and_no_counts() -> None:
    """To 2.28.3: ERROR: Unknown command SET FORMAT json, and then the report in words (ras/client_support.cc)."""
    text = b"NCCL version 2.24.3+cuda12.4 compiled with CUDA 12.4\n\nCUDA runtime version 12040\n"
    said = [b"SERVER PROTOCOL 2\n", b"OK\n", b"ERROR: Unknown command SET FORMAT json\n", text]
    with _server(said) as (address, _):
        assert asked(2.0, address) == RasAnswer((), "2.24.3", is_in_words=True)
    recorded = json.loads((RECORDED / "2-ranks-nccl-2.28.9-second.json").read_text())
    texts = [entry["text"] for entry in recorded if entry.get("text", "").lstrip().startswith("NCCL version")]
    assert len(texts) > 0
    assert {parsed(text) for text in texts} == {RasAnswer((), "2.28.9", is_in_words=True)}


@given(st.text() | st.from_regex(r'\{"communicators": .*\}', fullmatch=True))
def test_no_answer_is_an_error(text: str) -> None:
    assert parsed(text) is None or isinstance(parsed(text), RasAnswer)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "[" * 100_000,
        '{"communicators": [{"hash": 1}]}',
        '{"communicators": [{"hash": "a", "size": 1e999, "ranks": []}]}',
        "{" + '"a":' * 9,
    ],
)
def test_broken_answers_are_none(text: str) -> None:
    assert parsed(text) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1.0, 5.0, 30.0])), max_size=60))
def test_a_gang_whose_ranks_all_answer_with_equal_counts_never_hangs(steps: list[tuple[int, float]]) -> None:
    witness, at_s, count = Witness(), 0.0, 0
    for more, pause_s in steps:
        at_s, count = at_s + pause_s, count + more
        witness = witness.after(report(count, count, count), at_s)
        assert hang(witness, at_s + STILL_FOR_S) is None


def test_the_protocol_is_spoken_and_a_silent_process_is_told_from_none() -> None:
    text = json.loads((RECORDED / "2-ranks-nccl-2.28.9.json").read_text())[0]["text"]
    with _server([b"SERVER PROTOCOL 2\n", b"OK\n", b"OK\n", text.encode()]) as (address, heard):
        answer = asked(2.0, address)
        assert ([each.size for each in answer.report], answer.nccl_version) == ([2], "2.28.9")
    assert heard == [b"CLIENT PROTOCOL 2\n", b"TIMEOUT 2\n", b"SET FORMAT json\n", b"VERBOSE STATUS\n"]
    with _server([]) as (address, _), pytest.raises(NoReport) as silent:
        asked(0.2, address)
    assert silent.value.is_silent
    with pytest.raises(NoReport) as nobody:
        asked(0.2, address)
    assert not nobody.value.is_silent


@pytest.mark.parametrize("said", [[], [b"SERVER PROTOCOL 2\n", b"OK\n", b"OK\n"]], ids=["a line", "the report"])
def test_a_process_that_says_a_byte_now_and_then_is_not_heard_for_ever(said: list[bytes]) -> None:
    began = time.monotonic()
    with _server(said, drips=True) as (address, _), pytest.raises(NoReport) as silent:
        asked(0.2, address)
    assert silent.value.is_silent
    assert time.monotonic() - began < 2.5


class _server:  # noqa: N801 - read as a function
    """One client's conversation: a line in, an answer out. Without answers it takes the client and says nothing; where
    it `drips`, a byte from time to time."""

    def __init__(self, said: list[bytes], *, drips: bool = False) -> None:
        self._said, self._heard, self._drips = said, list[bytes](), drips
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> tuple[tuple[str, int], list[bytes]]:
        self._thread.start()
        return self._socket.getsockname()[:2], self._heard

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        client, _ = self._socket.accept()
        with client, client.makefile("rb") as lines:
            for said in self._said:
                self._heard.append(lines.readline())
                client.sendall(said)
            if not self._said and not self._drips:
                self._over.wait(5.0)
            for _ in range(50 if self._drips else 0):
                with suppress(OSError):
                    client.sendall(b" ")
                if self._over.wait(0.1):
                    break
