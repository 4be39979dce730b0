"""What is told about a job as Events of Kubernetes."""

from collections.abc import Mapping
from typing import Self

import msgspec

from closeknit.api.text.printable import printable


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    count: int = 0
    last_observed_time: str | None = None


class _WireEvent(msgspec.Struct, frozen=True, rename="camel"):
    type: str | None = None
    reason: str | None = None
    message: str | None = None
    count: int | None = None
    event_time: str | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    series: _Series | None = None
    metadata: Mapping[str, object] = {}


class JobEvent(msgspec.Struct, frozen=True):
    """One Event."""

    last_seen: str
    """RFC 3339; empty where it has no time."""
    type: str
    """Normal or Warning."""
    reason: str
    message: str
    count: int
    """How often it was told."""

    @classmethod
    def of_json(cls, document: bytes) -> Self:
        """Raises msgspec.DecodeError."""
        told = msgspec.json.decode(document, type=_WireEvent)
        series = told.series or _Series()
        made = told.metadata.get("creationTimestamp")
        seen = series.last_observed_time or told.last_timestamp or told.event_time or told.first_timestamp
        return cls(
            last_seen=seen or (made if isinstance(made, str) else ""),
            type=told.type or "Normal",
            reason=told.reason or "",
            message=told.message or "",
            count=series.count or told.count or 1,
        )

    def __str__(self) -> str:
        return printable(f"{self.last_seen} {self.type} {self.reason}: {self.message}")
