"""Events about jobs and Nodes."""

import logging
from collections.abc import Callable
from datetime import datetime

from closeknit.controller.writes.resources import EVENTS
from closeknit.controller.writes.write_slots import WriteSlots
from closeknit.kube.api import JsonObject
from closeknit.kube.errors import AlreadyExists, ApiError
from closeknit.lifecycle.writes.plan import Notice

CONTROLLER = "closeknit.dev/operator"

_log = logging.getLogger(__name__)


class EventRecorder:
    """Sends Events under the name of this operator."""

    def __init__(self, slots: WriteSlots, now: Callable[[], datetime], instance: str) -> None:
        self._slots = slots
        self._now = now
        self._instance = instance

    async def record(self, namespace: str, regarding: JsonObject, notice: Notice) -> None:
        """Sends one Event. One that gets lost is not sent again."""
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": "Event",
            "metadata": {"name": notice.name, "namespace": namespace},
            "eventTime": self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "type": "Warning" if notice.warning else "Normal",
            "reason": notice.reason,
            "action": notice.action,
            "note": notice.note,
            "regarding": regarding,
        }
        try:
            await self._slots.sent("create", EVENTS, self._slots.api.create(EVENTS, body, namespace=namespace))
        except AlreadyExists:
            pass  # told before a restart, or before the state went to and fro
        except ApiError as error:
            facts = {"of": f"{regarding['kind']} {regarding['name']}", "reason": notice.reason, "error": error}
            _log.warning("an Event was not stored", extra=facts)
