"""NCCL's RAS as a witness: the protocol of its client, and its report as values.

RAS runs in every process that uses NCCL 2.24 or newer; it answers in JSON from 2.28.7 on. The protocol is that of
`client.cc` in NCCL's sources: lines of text over TCP. One answer tells of all ranks that the answering process knows.
An older NCCL takes `SET FORMAT` for an unknown command and answers in words, of which its version alone is read.
"""

import json
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PORT = 28028  # NCCL's default (NCCL_RAS_ADDR), on localhost: the network namespace of the Pod
# A communicator has some 400 bytes a rank: room for 4,096 ranks in ten communicators each.
MAX_REPORT_BYTES = 16 << 20
_MAX_LINE_BYTES = 256
_WHOLE_IN = 5  # times what each part of an answer may take: the largest comes in many parts, which do not wait
_HELLO = (b"CLIENT PROTOCOL 2\n", b"TIMEOUT 2\n", b"SET FORMAT json\n")
_VERSION = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}(?![0-9.])")  # of NCCL; a build may add words to it
_IN_WORDS = re.compile(rf"^NCCL version ({_VERSION.pattern})", re.MULTILINE)
_HEAD = 4096  # characters of an answer in words that may have it: it is among the first lines
# In missing_ranks NCCL 2.28.9 leaves out the comma before "status": a value, the end of its line, and then a key.
_NO_COMMA = re.compile(r'([\d"}\]el])([ \t]*\r?\n\s*"[^"\n]*"\s*:)')


@dataclass(frozen=True, slots=True)
class RankId:
    """A rank of one communicator, and the process that runs it."""

    rank: int
    host: str
    """Address of its host as NCCL sees it: of its Pod."""
    pid: int
    cuda_dev: int
    """The GPU by CUDA's number in its container: its local rank."""


@dataclass(frozen=True, slots=True)
class Communicator:
    """One communicator in one report."""

    key: str
    """Its hashes: the same in each report."""
    size: int
    counts: Mapping[RankId, Mapping[str, int]]
    """Collectives called so far by each rank that answered, by kind."""
    unresponsive: frozenset[RankId]
    """Ranks that did not answer, dead ones among them."""


Report = tuple[Communicator, ...]


@dataclass(frozen=True, slots=True)
class RasAnswer:
    """What one process has said."""

    report: Report
    nccl_version: str | None = None
    """Version of NCCL in it, for example 2.28.9; None where it is not told."""
    is_in_words: bool = False
    """Whether it has no counts that can be read."""


def parsed(text: str) -> RasAnswer | None:
    """The answer in a text; None for anything else. A comma that NCCL leaves out is put in."""
    for each in (text, _NO_COMMA.sub(r"\1,\2", text)):
        try:
            document = json.loads(each)
            report = tuple(_communicator(entry) for entry in document["communicators"])
            return RasAnswer(report, _version(document.get("nccl_version")))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            continue
    found = _IN_WORDS.search(text[:_HEAD])
    return None if found is None else RasAnswer((), found[1], is_in_words=True)


def _version(told: object) -> str | None:
    found = _VERSION.match(told) if isinstance(told, str) else None
    return None if found is None else found[0]


def _communicator(entry: Mapping[str, Any]) -> Communicator:
    missing = entry.get("missing_ranks") or ()
    return Communicator(
        key=f"{entry['hash']}/{entry.get('secondary_hash', '')}",
        size=int(entry["size"]),
        counts={
            _rank(each): {str(kind): int(count) for kind, count in each["collective_counts"].items()}
            for each in entry["ranks"]
        },
        unresponsive=frozenset(_rank(each) for each in missing),
    )


def _rank(entry: Mapping[str, Any]) -> RankId:
    return RankId(int(entry["rank"]), str(entry["host"]), int(entry["pid"]), int(entry["cuda_dev"]))


class NoReport(Exception):  # noqa: N818 - a fact, and mostly no error
    """RAS gave no report. `is_silent`: a process took the connection and said nothing."""

    def __init__(self, is_silent: bool) -> None:
        super().__init__()
        self.is_silent = is_silent


class _Answers:
    """What a process says on a connection: within `timeout_s` of the word before, and all of it within _WHOLE_IN times
    that. Any process of the Pod may listen there, and one that says a byte now and then would be heard for ever."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self._connection, self._timeout_s = connection, timeout_s
        self._ends_at = time.monotonic() + _WHOLE_IN * timeout_s
        self._heard = bytearray()

    def line(self) -> bytes:
        """The next line; the beginning of one that is too long, or has no end."""
        while b"\n" not in self._heard and len(self._heard) < _MAX_LINE_BYTES and self._hear():
            pass
        end = self._heard.find(b"\n", 0, _MAX_LINE_BYTES) + 1 or _MAX_LINE_BYTES
        line, self._heard = bytes(self._heard[:end]), self._heard[end:]
        return line

    def rest(self) -> bytes:
        """All that follows; of one that is too long more than MAX_REPORT_BYTES."""
        while len(self._heard) <= MAX_REPORT_BYTES and self._hear():
            pass
        return bytes(self._heard)

    def _hear(self) -> bool:
        """Whether there is more. Raises OSError."""
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(min(self._timeout_s, left_s))
        more = self._connection.recv(1 << 16)
        self._heard += more
        return bool(more)


def asked(timeout_s: float, address: tuple[str, int] = ("127.0.0.1", PORT)) -> RasAnswer:
    """One answer. All processes of a Pod share the port, so chance decides which one answers. Raises NoReport."""
    is_connected = False
    try:
        with socket.create_connection(address, timeout_s) as connection:
            is_connected = True
            answers = _Answers(connection, timeout_s)
            for line in _HELLO:
                connection.sendall(line)
                if not answers.line().endswith(b"\n"):
                    raise NoReport(is_silent=False)
            connection.sendall(b"VERBOSE STATUS\n")
            text = answers.rest()
    except OSError:  # time-outs are among them
        raise NoReport(is_silent=is_connected) from None
    answer = parsed(text.decode(errors="replace")) if len(text) <= MAX_REPORT_BYTES else None
    if answer is None:
        raise NoReport(is_silent=False)
    return answer
