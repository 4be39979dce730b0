"""Log lines that people and programs can read: a message, and facts as key=value or as JSON.

Whatever others wrote is printable in them, tracebacks included: an entry is one line, and begins no other. JSON of
ASCII alone is so by itself.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from closeknit.api.text.printable import printable

MOST = 8192  # characters of a message or a fact; an API server's refusal of a large object quotes much of it
# What every LogRecord has by itself; everything else came in by `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def facts(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller added to the message."""
    return {key: value for key, value in vars(record).items() if key not in _OWN}


class PlainFormatter(logging.Formatter):
    """`2026-11-21T10:00:00.123Z INFO loop decided job=ml/train nodes=gpu-01`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback, where there is one, follows it."""
        added = "".join(f" {key}={_shown(value)}" for key, value in facts(record).items())
        message = printable(record.getMessage(), MOST)
        line = f"{_time(record)} {record.levelname} {_short(record.name)} {message}{added}"
        if not record.exc_info:
            return line
        # Indented, so that no line of a traceback looks like an entry: a message in it may have many.
        trace = self.formatException(record.exc_info).split("\n")
        return "\n".join([line, *(f"  {printable(each, MOST)}" for each in trace)])


class JsonFormatter(logging.Formatter):
    """One JSON object on each line: ts, level, logger, msg, and the facts."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the values are."""
        message = record.getMessage()[:MOST]
        head = {"ts": _time(record), "level": record.levelname, "logger": record.name, "msg": message}
        added = {
            key: value if isinstance(value, int | float) else str(value)[:MOST] for key, value in facts(record).items()
        }
        entry: dict[str, Any] = {**head, **added}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class LogFormat(StrEnum):
    """How an entry is written."""

    PLAIN = "plain"
    JSON = "json"


class LogLevel(StrEnum):
    """The least that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


FORMATTERS: Mapping[LogFormat, type[logging.Formatter]] = {
    LogFormat.PLAIN: PlainFormatter,
    LogFormat.JSON: JsonFormatter,
}


def configure(log_format: LogFormat, log_level: LogLevel) -> None:
    """Sends everything from this level on to standard error; what libraries say below WARNING stays out in any case."""
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATTERS[log_format]())
    level = logging.getLevelNamesMapping()[log_level.upper()]
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("closeknit").setLevel(level)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _short(name: str) -> str:
    return name.removeprefix("closeknit.")


def _shown(value: object) -> str:
    text = str(value)
    shown = printable(text, MOST)
    if text and shown == text and not any(character in text for character in ' "='):
        return text
    quoted = shown.replace('"', '\\"')
    return f'"{quoted}"'
