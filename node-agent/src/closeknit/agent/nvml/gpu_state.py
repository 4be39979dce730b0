"""How one GPU is: what may change at any moment, in few calls, since it is asked every few seconds."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from closeknit.agent.discovery.readings.readings import HealthReading
from closeknit.agent.nvml.checked_calls import ask, fields
from closeknit.agent.nvml.gpu_static import fabric
from closeknit.agent.nvml.links import HOPPER
from closeknit.agent.nvml.nvml_messages import ABSENT, Pulse

BLACKWELL = (10, 0)
RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; the binding has it from 12.570 on
# Of each link: how often it had to be retrained. Blackwell has no such counter but one of the times when it failed.
HOPPER_LINK_ERRORS, BLACKWELL_LINK_ERRORS = 162, 214
OLD_LINK_ERRORS = 59  # NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, of all links
UNCORRECTED, VOLATILE = 1, 0  # nvmlMemoryErrorType_t, nvmlEccCounterType_t: since the driver was loaded
INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # the kernel's PROC_PID_INIT_INO

_T = TypeVar("_T")


def pulse(handle: Any, capability: tuple[int, int] | None, links: Sequence[int], *, counts: bool) -> Pulse:
    """The state of a GPU, and of these links of it.

    Without `counts` the errors of links are left out. On an H200 these take 14 ms of a core, the states of links 2 ms,
    and all the rest 0.5 ms (docs/measurements/2026-11-22-agent-calls-on-h200.md).
    """
    errors: dict[str, str] = {}
    unwell: dict[str, str] = {}

    def asked(fact: str, call: Callable[..., _T], *arguments: Any) -> _T | None:
        return ask(unwell, fact, call, handle, *arguments)

    generation = capability or (0, 0)
    wanted: list[int | tuple[int, int]] = [RECOVERY_ACTION]
    counter = BLACKWELL_LINK_ERRORS if generation >= BLACKWELL else HOPPER_LINK_ERRORS
    if generation >= HOPPER:
        wanted += [(pynvml.NVML_FI_DEV_NVLINK_GET_STATE, link) for link in links]
        wanted += [(counter, link) for link in links] if counts else []
    elif links and counts:
        wanted.append(OLD_LINK_ERRORS)
    action, *values = fields(handle, unwell, "recovery_action", wanted)
    told = len(links) if generation >= HOPPER else 0
    counted = [value for value in values[told:] if isinstance(value, int)]
    # Without one link their sum would seem to have fallen, and to rise when that link is read again.
    uncounted = [value for value in values[told:] if isinstance(value, str) and value not in ABSENT]
    if uncounted:
        unwell["link_errors"] = uncounted[0]
    if generation >= HOPPER:
        states = tuple(value if isinstance(value, int) else None for value in values[:told])
    else:
        states = tuple(ask({}, "state", pynvml.nvmlDeviceGetNvLinkState, handle, link) for link in links)
    rows = asked("rows_failed", pynvml.nvmlDeviceGetRemappedRows)
    processes = asked("pids", pynvml.nvmlDeviceGetComputeRunningProcesses_v3) if _sees_all_processes() else None
    health = HealthReading(
        recovery_action=action if isinstance(action, int) else None,
        rows_pending=None if rows is None else bool(rows[2]),
        rows_failed=None if rows is None else bool(rows[3]),
        uncorrected_ecc=asked("uncorrected_ecc", pynvml.nvmlDeviceGetTotalEccErrors, UNCORRECTED, VOLATILE),
        clocks_event_reasons=_clocks_event_reasons(handle, unwell),
        link_errors=sum(counted) if counted and not uncounted else None,
        pids=None if processes is None else tuple(sorted(process.pid for process in processes)),
        errors=unwell,
    )
    if isinstance(action, str):
        unwell["recovery_action"] = action
    uuid = ask(errors, "uuid", pynvml.nvmlDeviceGetUUID, handle)
    registration = fabric(handle, errors)
    return Pulse(uuid=uuid, links=states, fabric=registration, health=health, errors=errors)


def _clocks_event_reasons(handle: Any, errors: dict[str, str]) -> int | None:
    """Why the clocks are not at their highest; drivers before 535 call these throttle reasons."""
    reasons = ask(errors, "clocks_event_reasons", pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if errors.get("clocks_event_reasons") == "FunctionNotFound":
        del errors["clocks_event_reasons"]
        return ask(errors, "clocks_event_reasons", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return reasons


def _sees_all_processes() -> bool:
    """Whether this process is in the host's PID namespace; in any other, NVML's list is empty, which says nothing."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == INITIAL_PID_NAMESPACE
    except OSError:
        return False
