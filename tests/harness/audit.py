"""The API server's audit log, read as the writes that it records."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from closeknit.api.text.nesting import shallow


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One write that the API server answered. Reads, leases and the control plane's own Events are not recorded.

    Three orders: a write that saw another's effect has the later `received`; one that began after another's answer has
    its `received` after the other's `at`; of two objects as stored, the later has the greater `revision`, which is the
    answer's resourceVersion and None for refusals, dry runs, bindings and deletions that answer with a Status.
    """

    received: datetime  # when the request arrived
    at: datetime  # when its answer was complete
    user: str
    verb: str  # create, update, patch (server-side apply too), delete, deletecollection
    resource: str  # plural, without the group
    subresource: str  # "" for the object itself
    namespace: str
    name: str  # the answer's name where the request had none (generateName)
    code: int
    dry_run: bool
    revision: int | None
    body: Any  # as sent: an object, a list of patch operations, None where it is secret
    response: Any  # the object, or the Status of a refusal


class AuditLog:
    """One control plane's log, which grows: each line is read once, however often the writes are asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes_read = 0
        self._events: list[AuditEvent] = []

    def events(self) -> list[AuditEvent]:
        """All recorded writes so far, in the order in which they were received.

        The API server writes an event just after its answer, so that the last ones may be a moment late: wait for them.
        """
        with self._path.open("rb") as file:
            file.seek(self._bytes_read)
            *lines, _ = file.read().split(b"\n")  # the last one is empty, or still being written
        self._bytes_read += sum(len(line) + 1 for line in lines)
        # What was sent may be nested deeper than Python reads.
        self._events += [audit_event(json.loads(shallow(line))) for line in lines]
        self._events.sort(key=lambda event: event.received)
        return list(self._events)


def audit_event(record: Mapping[str, Any]) -> AuditEvent:
    """The event of one line of the log (audit.k8s.io/v1)."""
    target = record.get("objectRef", {})
    response = record.get("responseObject")
    metadata = response.get("metadata", {}) if isinstance(response, dict) else {}
    code = record["responseStatus"]["code"]
    dry_run = "dryRun" in parse_qs(urlsplit(record["requestURI"]).query)
    revision = metadata.get("resourceVersion")
    return AuditEvent(
        received=_time(record["requestReceivedTimestamp"]),
        at=_time(record["stageTimestamp"]),
        user=record.get("impersonatedUser", record["user"])["username"],
        verb=record["verb"],
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name") or metadata.get("name", ""),
        code=code,
        dry_run=dry_run,
        revision=int(revision) if revision and not dry_run and code < 300 else None,
        body=record.get("requestObject"),
        response=response,
    )


def _time(written: str) -> datetime:
    return datetime.fromisoformat(written.replace("Z", "+00:00"))
