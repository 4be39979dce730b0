"""Why the driver of a machine cannot be used, and what to do about it. Pure."""

from dataclasses import dataclass

from closeknit.agent.discovery.readings.readings import Readings
from closeknit.api.reasons import ReadyReason

HUNG = "Hung"  # beside NVML's own names of errors: no answer within the deadline
CRASHED = "Crashed"  # the process that asks NVML ended of itself
NO_PERMISSION = "NoPermission"
MAX_LOAD_LENGTH = 63  # of a short string on the wire; a boot id of 36 characters and 20 digits are less


@dataclass(frozen=True, slots=True)
class DriverFailure:
    """Why no GPU of a machine could be read."""

    reason: ReadyReason
    message: str


# NVML's name of an error -> what it means for a node, and what to do.
FAILURES = {
    "LibraryNotFound": DriverFailure(
        ReadyReason.DRIVER_NOT_FOUND,
        "libnvidia-ml.so.1 is not installed, or the container runtime did not put it into this container; install the "
        "driver, and give the agent NVIDIA's runtime class or a DRA claim.",
    ),
    "DriverNotLoaded": DriverFailure(
        ReadyReason.DRIVER_NOT_LOADED,
        "NVIDIA's kernel modules are not loaded; load them (nvidia-smi shows whether they work).",
    ),
    "LibRmVersionMismatch": DriverFailure(
        ReadyReason.DRIVER_MISMATCH,
        "The driver's library and its kernel module are of different versions, as after an upgrade under a running "
        "module; drain the node and restart it.",
    ),
    NO_PERMISSION: DriverFailure(
        ReadyReason.PERMISSION_DENIED,
        "The agent may not open the GPUs' device nodes; give it NVIDIA's runtime class or a DRA admin claim.",
    ),
    "GpuNotFound": DriverFailure(
        ReadyReason.NO_GPU,
        "The driver has no GPU; see whether lspci lists one, and whether another driver holds it.",
    ),
    "Memory": DriverFailure(
        ReadyReason.OUT_OF_MEMORY, "The driver got no memory; see what else takes it, and the agent's own limit."
    ),
    HUNG: DriverFailure(
        ReadyReason.DRIVER_HUNG,
        "The driver does not answer; see the kernel's log for NVRM lines, drain the node and restart it.",
    ),
    CRASHED: DriverFailure(
        ReadyReason.DRIVER_FAILED,
        "The driver's library ended the process that asked it; see the kernel's log for NVRM lines.",
    ),
}
FAILURES["InsufficientResources"] = FAILURES["Memory"]


def load(readings: Readings) -> str | None:
    """The load of the driver, and the start of the machine, that answer; None where either is unknown."""
    kernel = readings.kernel
    known = kernel.boot_id is not None and kernel.nvidia_load is not None
    return f"{kernel.boot_id}.{kernel.nvidia_load}"[:MAX_LOAD_LENGTH] if known else None


def failure(readings: Readings) -> DriverFailure | None:
    """Why not one GPU of this machine could be read; None where one could."""
    error = readings.errors.get("driver") or readings.errors.get("gpus")
    if error is None and not readings.gpus:
        return FAILURES["GpuNotFound"]
    if error is None and all("handle" in gpu.errors for gpu in readings.gpus):
        errors = {gpu.errors["handle"] for gpu in readings.gpus}
        if len(errors) > 1 or not errors <= FAILURES.keys():
            words, number = ", ".join(sorted(errors)), len(readings.gpus)
            none = f"None of {number} GPUs answers" if number > 1 else "The one GPU does not answer"
            return DriverFailure(
                ReadyReason.NO_GPU_ANSWERS,
                f"{none} ({words}); see the kernel's log for NVRM lines, drain the "
                "node and reset its GPUs or restart it.",
            )
        (error,) = errors
    if error is None:
        return None
    unknown = DriverFailure(
        ReadyReason.DRIVER_FAILED,
        f"The driver cannot be used ({error}); see whether nvidia-smi works, and the kernel's log for NVRM lines.",
    )
    found = FAILURES.get(error, unknown)
    if readings.suspect is None:
        return found
    return DriverFailure(found.reason, f"{found.message} It stopped to answer when GPU {readings.suspect} was asked.")
