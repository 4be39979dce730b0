"""Log lines: readable by people as key=value, by programs as JSON."""

import json
import logging
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.runtime.logs import JsonFormatter, PlainFormatter


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
