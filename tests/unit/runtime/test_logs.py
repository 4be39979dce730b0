"""Log lines: readable by people as key=value, by programs as JSON."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.runtime.logs import JsonFormatter, LogFormat, LogLevel, PlainFormatter, configure


@pytest.fixture
def loggers() -> Iterator[None]:
    """What a test sets of them is as before afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("closeknit")
    handlers, levels = root.handlers, (root.level, ours.level)
    yield
    root.handlers = handlers
    for logger, level in zip((root, ours), levels, strict=True):
        logger.setLevel(level)


def record(**facts: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "closeknit.controller.loop", "levelname": "INFO", "msg": "decided", **facts})
    made.created = 1_795_257_000.25
    return made


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        pytest.param({}, "2026-11-21T10:30:00.250Z INFO controller.loop decided", id="no facts"),
        pytest.param(
            {"job": JobKey("ml", "train"), "attempt": 2},
            "2026-11-21T10:30:00.250Z INFO controller.loop decided job=ml/train attempt=2",
            id="plain facts",
        ),
        pytest.param(
            {"note": 'needs "8" GPUs', "reason": ""},
            '2026-11-21T10:30:00.250Z INFO controller.loop decided note="needs \\"8\\" GPUs" reason=""',
            id="facts that need quotes",
        ),
        pytest.param(
            {"note": "one\ntwo"},
            '2026-11-21T10:30:00.250Z INFO controller.loop decided note="one\\ntwo"',
            id="one line",
        ),
    ],
)
def test_plain_lines(facts: dict[str, Any], line: str) -> None:
    assert PlainFormatter().format(record(**facts)) == line


def test_json_lines() -> None:
    assert json.loads(JsonFormatter().format(record(job=JobKey("ml", "train"), attempt=2))) == {
        "ts": "2026-11-21T10:30:00.250Z",
        "level": "INFO",
        "logger": "closeknit.controller.loop",
        "msg": "decided",
        "job": "ml/train",
        "attempt": 2,
    }


HOSTILE = "a\nERROR forged\x1b[2J\x9b\u202e\u2028\ud800"


@pytest.mark.parametrize("formatter", [PlainFormatter(), JsonFormatter()], ids=["plain", "json"])
def test_others_text_begins_no_line_and_drives_no_terminal(formatter: logging.Formatter) -> None:
    raised = (ValueError, ValueError(HOSTILE), None)
    said = record(
        msg="reading %s: %s", args=("pods", HOSTILE), note=HOSTILE, job=JobKey("ml", HOSTILE), exc_info=raised
    )
    first, *others = formatter.format(said).split("\n")
    assert "reading pods: a" in first
    assert all(line.isprintable() for line in (first, *others))
    assert all(line.startswith("  ") for line in others)


@pytest.mark.parametrize("formatter", [PlainFormatter(), JsonFormatter()], ids=["plain", "json"])
def test_a_line_ends_somewhere(formatter: logging.Formatter) -> None:
    assert len(formatter.format(record(msg="x" * 10**6, note="\x1b" * 10**6))) < 70_000


@pytest.mark.parametrize(
    ("level", "written"),
    [
        (LogLevel.DEBUG, ["debug", "info", "warning", "library warning", "error"]),
        (LogLevel.INFO, ["info", "warning", "library warning", "error"]),
        (LogLevel.WARNING, ["warning", "library warning", "error"]),
        (LogLevel.ERROR, ["error"]),
    ],
)
@pytest.mark.usefixtures("loggers")
def test_a_level_holds_back_what_is_below(
    level: LogLevel, written: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ours, library = logging.getLogger("closeknit.controller"), logging.getLogger("kopf")
    configure(LogFormat.JSON, level)
    ours.debug("debug")
    ours.info("info")
    library.info("library info")
    ours.warning("warning")
    library.warning("library warning")
    ours.error("error")
    assert [json.loads(line)["msg"] for line in capsys.readouterr().err.splitlines()] == written
