"""How far the dated log of one container was read, so that the next read goes on there."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from closeknit.cli.logs.log_lines import LinePart, LogLines

Stamp = tuple[int, int]
"""Seconds of Unix and nanoseconds."""
# As a kubelet writes it: in the time zone of its node, and of the fraction as many digits as the runtime has kept.
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
_BEGUN_STAMP = re.compile(rb"[-0-9T:.+Z]*")


class LogPosition:
    """A place in a log.

    An API server is asked for a log by whole seconds, and gives the lines from that second on in the same order again.
    So those of the newest second are counted, and in the next read so many are passed over. Of a long line that was cut
    off inside, the bytes are counted.
    """

    def __init__(self) -> None:
        self.newest: Stamp | None = None
        """The latest time of a line."""
        self.lines = 0
        """How many lines of its second, or later, are through."""
        self.begun: Stamp | None = None
        """The time of a line that is through in part."""
        self.bytes = 0
        """How many of its bytes are."""
        self.held: LinePart | None = None
        """The end of the last read, if no line break came after it."""

    @property
    def since(self) -> str | None:
        """The second from which on the log is to be asked for; None: from its beginning."""
        if self.newest is None:
            return None
        return datetime.fromtimestamp(self.newest[0], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def begin(self, stamp: Stamp) -> None:
        """A line is handed on."""
        if self.newest is None or stamp[0] > self.newest[0]:
            self.lines = 0
        self.newest = max(stamp, self.newest or stamp)
        self.begun, self.bytes = stamp, 0

    def end(self) -> None:
        """It is through."""
        if self.begun is not None and self.newest is not None and self.begun[0] >= self.newest[0]:
            self.lines += 1
        self.begun, self.bytes = None, 0

    def rest(self) -> Iterator[bytes]:
        """What the last read has held back: nothing more comes after it."""
        if (held := self.held) is not None:
            self.held = None
            text = stamped(held.text)[1] if held.begins else held.text
            if not (held.begins and _BEGUN_STAMP.fullmatch(text)):
                yield text + b"\n"


class LogRead:
    """One read of a dated log from a position on, which it moves."""

    def __init__(self, position: LogPosition) -> None:
        self._position = position
        self._held, position.held = position.held, None
        self._cut = LogLines()
        self._to_pass = position.lines
        """Lines that are through and come again."""
        self._again, self._bytes = position.begun, position.bytes
        """The line that is through in part, and how much of it is still to pass."""
        self._comes_again = True
        """Whether no new line has come yet."""
        self._passes = position.newest is not None
        """Whether the present line is passed over: at first what comes before any time is the end of an old line."""

    def of(self, piece: bytes) -> Iterator[bytes]:
        """Lines that are new, each without its time and with its line break."""
        for part in self._cut.of(piece):
            yield from self._new(part)

    def end(self) -> None:
        """The read is over. What has no line break yet comes again in the next one, or is the `rest` of the log."""
        rest = next(self._cut.rest(), None)
        if rest is not None and rest.begins and (stamp := stamped(rest.text)[0]) is not None:
            self._passes = self._is_passed(stamp)
        self._position.held = self._held if rest is None or self._passes else rest

    def _new(self, part: LinePart) -> Iterator[bytes]:
        text = part.text
        if part.begins:
            stamp, text = stamped(text)
            if stamp is not None:
                self._passes = self._is_passed(stamp)
                if not self._passes:
                    yield from self._held_before(stamp)
                    if stamp != self._again:
                        self._again, self._bytes = None, 0
                        self._position.begin(stamp)
        if self._passes:
            return
        if self._bytes:
            passed = min(self._bytes, len(text))
            self._bytes -= passed
            text = text[passed:]
            if not text:
                if part.ends:
                    self._finish()
                return
        self._position.bytes += len(text)
        yield text + b"\n"
        if part.ends:
            self._finish()

    def _finish(self) -> None:
        self._again, self._bytes = None, 0
        self._position.end()

    def _is_passed(self, stamp: Stamp) -> bool:
        """Whether the line is through: by number, as long as none is later than all that are."""
        newest = self._position.newest
        if not self._comes_again or newest is None:
            return False
        if stamp[0] < newest[0]:  # before the second that was asked for
            return True
        if self._to_pass == 0:
            self._comes_again = False
            return False
        if stamp > newest:  # the log was cut down meanwhile
            self._position.lines -= self._to_pass
            self._comes_again = False
            return False
        self._to_pass -= 1
        return True

    def _held_before(self, stamp: Stamp) -> Iterator[bytes]:
        """What the read before this one has held back, if it does not come again: its container has ended with it."""
        if (held := self._held) is None:
            return
        self._held = None
        its_stamp, text = stamped(held.text) if held.begins else (self._again, held.text)
        if its_stamp not in (stamp, None):  # without a time it was cut off before its first word
            yield text + b"\n"


def stamped(line: bytes) -> tuple[Stamp | None, bytes]:
    """(time, the line itself) of a line that an API server was asked to date; no time where it has none."""
    found = _STAMP.match(line)
    if found is None:
        return None, line
    second, fraction, zone = (each.decode() if each else "" for each in found.groups())
    try:
        at = int(datetime.fromisoformat(second + zone.replace("Z", "+00:00")).timestamp())
    except (ValueError, OverflowError):
        return None, line
    return (at, int(fraction.ljust(9, "0"))), line[found.end() :]
