"""The harness reads each line of the audit log once, when it is whole, and tells the writes in their order."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness import audit
from harness.audit import AuditEvent, AuditLog


def line(second: int, name: str) -> str:
    moment = f"2026-11-22T06:00:{second:02d}.000000Z"
    record = {
        "objectRef": {"resource": "pods", "name": name},
        "responseStatus": {"code": 201},
        "requestURI": "/api/v1/namespaces/a/pods",
        "requestReceivedTimestamp": moment,
        "stageTimestamp": moment,
        "user": {"username": "admin"},
        "verb": "create",
    }
    return json.dumps(record) + "\n"


def test_what_was_read_is_not_read_again_and_what_is_half_written_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[Mapping[str, Any]] = []
    real = audit.audit_event

    def counted(record: Mapping[str, Any]) -> AuditEvent:
        decoded.append(record)
        return real(record)

    monkeypatch.setattr(audit, "audit_event", counted)
    file = tmp_path / "audit.log"
    late = line(3, "c")
    file.write_text(line(2, "b") + late[:40])
    log = AuditLog(file)
    assert [event.name for event in log.events()] == ["b"]
    with file.open("a") as more:
        more.write(late[40:] + line(1, "a"))
    assert [event.name for event in log.events()] == ["a", "b", "c"]
    assert [event.name for event in log.events()] == ["a", "b", "c"]
    assert len(decoded) == 3
