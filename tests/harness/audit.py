"""The API server's audit log, read as the writes that it records."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from closeknit.api.nesting import shallow


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


def read_audit_log(path: Path) -> list[AuditEvent]:
    """All recorded writes so far, in the order in which they were received.

    The API server writes an event just after its answer, so that the last ones may be a moment late: wait for them.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    # A line without its end is still being written; what was sent may be nested deeper than Python reads.
    events = [audit_event(json.loads(shallow(line))) for line in lines if line.endswith(b"\n")]
    return sorted(events, key=lambda event: event.received)


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
