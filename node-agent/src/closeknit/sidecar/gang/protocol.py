"""What the Pods of a gang say to each other: reports of a member, orders of the meeting point, and how both are sealed.

A connection begins with the server's nonce on a line of its own, which the client answers with its own nonce. Every
further line is a seal, a space and JSON. A seal is a keyed hash over direction, both nonces, the line's number and its
text: who lacks the key can neither say anything nor repeat what was said.
"""

import json
import os
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hashlib import blake2s
else:
    try:
        from _blake2 import blake2s  # of hashlib, which brings in OpenSSL: 4 MiB, and half of the time to start
    except ImportError:
        from hashlib import blake2s

GREETING = "closeknit-gang/3"
LONGEST_LINE = 512  # bytes with its end; the longest that is ever sent has some 200
_NONCE_BYTES = 16
_SEAL_BYTES = 16
_LARGEST_RUN = 1 << 53


class ForgedError(ValueError):
    """A line that no member of the gang has sent, or not in this place."""


class Phase(StrEnum):
    """Where one Pod is."""

    RUNNING = "running"
    """Its containers were let go, and run."""
    FAILED = "failed"
    """Its trainer has ended with an error: its containers will be started again."""
    WAITING = "waiting"
    """Nothing of its old run is left, and nothing of the next has begun."""
    OVER = "over"
    """Its trainer has ended for good: its containers are never started again."""
    LEAVING = "leaving"
    """Its sidecar was told to end."""


class Report(NamedTuple):
    """What a member says of itself, again and again."""

    index: int  # type: ignore[assignment] # in the place of tuple.index, which none calls
    phase: Phase
    run: int
    """The last run that its containers were let go for, from 0; -1 for none."""
    nonce: str = ""
    """Of one who waits: its own word for this wait, by which it is let go once."""
    replacement: int = 0
    """How many Pods had its place in the gang before it."""


class Command(StrEnum):
    """What a member is to do."""

    STAY = "stay"
    WHOLE = "whole"
    """Stay; and every member of the gang is heard."""
    RESET = "reset"
    """Leave every run up to that one."""
    LEAVE = "leave"
    """The same, by choice: its trainer gets the grace period of its Pod first."""
    GO = "go"
    """Begin that run."""
    GIVE_UP = "give-up"
    """No next run can begin in these Pods. Who runs goes on, and keeps that: node rank 0 may be over, and not there to
    say it again."""


class Order(NamedTuple):
    """What the meeting point answers to a report."""

    command: Command
    run: int = -1
    nonce: str = ""
    nodes: int = 0
    """Of the gang in that run; 0: as each Pod was told when it was made."""
    ranks: int = 0
    """Of all nodes, likewise."""


STAY, WHOLE = Order(Command.STAY), Order(Command.WHOLE)
_PHASES = {each.value: each for each in Phase}
_COMMANDS = {each.value: each for each in Command}


def nonce() -> str:
    """A new one."""
    return os.urandom(_NONCE_BYTES).hex()


class Seals:
    """The seals of one direction of one connection."""

    def __init__(self, key: bytes, direction: str, session: str) -> None:
        self._begin = blake2s(f"{GREETING} {direction} {session} ".encode(), key=key[:32], digest_size=_SEAL_BYTES)
        self._count = 0

    def seal(self, said: Report | Order) -> bytes:
        """The next line."""
        text = json.dumps(said, separators=(",", ":")).encode()
        return self._next(text) + b" " + text + b"\n"

    def opened(self, line: bytes) -> list[object]:
        """The next line's values. Raises ForgedError."""
        seal, _, text = line.partition(b" ")
        if seal != self._next(text):
            raise ForgedError("a line without a valid seal")
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise ForgedError("a line that is no JSON") from None
        if not isinstance(values, list):
            raise ForgedError("a line that is no list")
        return values

    def _next(self, text: bytes) -> bytes:
        found = self._begin.copy()
        found.update(b"%d " % self._count)
        found.update(text)
        self._count += 1
        return found.hexdigest().encode()


def to_server(key: bytes, session: str) -> Seals:
    """The seals of reports."""
    return Seals(key, "report", session)


def to_client(key: bytes, session: str) -> Seals:
    """The seals of orders."""
    return Seals(key, "order", session)


def report(values: list[object]) -> Report:
    """The report with these values. Raises ForgedError."""
    match values:
        case [int(index), str(phase), int(run), str(own), int(before)] if (
            phase in _PHASES and _is_run(run) and len(own) <= 64 and 0 <= before <= _LARGEST_RUN
        ):
            return Report(index, _PHASES[phase], run, own, before)
    raise ForgedError("no report")


def order(values: list[object]) -> Order:
    """The order with these values. Raises ForgedError."""
    match values:
        case [str(command), int(run), str(own), int(nodes), int(ranks)] if (
            command in _COMMANDS and _is_run(run) and len(own) <= 64 and 0 <= nodes <= ranks <= _LARGEST_RUN
        ):
            return Order(_COMMANDS[command], run, own, nodes, ranks)
    raise ForgedError("no order")


def _is_run(run: int) -> bool:
    return -1 <= run < _LARGEST_RUN
