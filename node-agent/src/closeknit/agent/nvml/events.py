"""XID events: the driver's own words about what went wrong on a GPU. Those before a GPU is watched are lost."""

from typing import Any

import pynvml

from closeknit.agent.discovery.readings.readings import XidReading
from closeknit.agent.nvml.checked_calls import ask

MAX_AT_ONCE = 64  # of one answer; what is left waits in the driver for the next question
WANTED = pynvml.nvmlEventTypeXidCriticalError


class Events:
    """The event set of one session."""

    def __init__(self) -> None:
        self._set: Any = None
        self._watched: set[int] = set()  # indexes

    def watch(self, index: int, handle: Any) -> None:
        """Listens to a GPU from now on, if it can be listened to; a second call does nothing."""
        if index in self._watched:
            return
        self._watched.add(index)
        errors: dict[str, str] = {}
        if self._set is None:
            self._set = ask(errors, "set", pynvml.nvmlEventSetCreate)
        supported = ask(errors, "supported", pynvml.nvmlDeviceGetSupportedEventTypes, handle)
        if self._set is not None and supported is not None and supported & WANTED:
            ask(errors, "register", pynvml.nvmlDeviceRegisterEvents, handle, WANTED, self._set)
        if errors and not errors.keys() <= {"register", "supported"}:
            self._watched.discard(index)  # there was no set: once more

    def since_last_asked(self) -> tuple[XidReading, ...]:
        """What has happened; never waits."""
        found: list[XidReading] = []
        while self._set is not None and len(found) < MAX_AT_ONCE:
            errors: dict[str, str] = {}
            event = ask(errors, "event", pynvml.nvmlEventSetWait_v2, self._set, 0)
            if event is None:
                if errors["event"] != "Timeout":
                    self._read_again()
                break
            if event.eventType & WANTED:
                uuid = ask(errors, "uuid", pynvml.nvmlDeviceGetUUID, event.device)
                found.append(XidReading(xid=int(event.eventData), uuid=uuid, errors=errors))
        return tuple(found)

    def _read_again(self) -> None:
        """A set that fails is given up; the GPUs are watched again when they are asked next."""
        ask({}, "free", pynvml.nvmlEventSetFree, self._set)
        self._set = None
        self._watched.clear()
