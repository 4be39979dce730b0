"""What one GPU does at this moment, for a person who looks."""

from typing import Any

import pynvml

from closeknit.agent.discovery.readings.activity import LiveGpu
from closeknit.agent.nvml.checked_calls import ask

ON_DIE = 0  # NVML_TEMPERATURE_GPU, the only sensor that there is


def live(index: int, handle: Any) -> LiveGpu:
    """The values of now, less those that NVML refuses; without a handle there are none."""
    if handle is None:
        return LiveGpu(index=index)
    unread: dict[str, str] = {}  # a person sees that a value is missing
    utilization = ask(unread, "utilization", pynvml.nvmlDeviceGetUtilizationRates, handle)
    memory = ask(unread, "memory", pynvml.nvmlDeviceGetMemoryInfo, handle)
    return LiveGpu(
        index=index,
        uuid=ask(unread, "uuid", pynvml.nvmlDeviceGetUUID, handle),
        utilization_percent=None if utilization is None else int(utilization.gpu),
        memory_used_bytes=None if memory is None else int(memory.used),
        temperature_celsius=ask(unread, "temperature", pynvml.nvmlDeviceGetTemperature, handle, ON_DIE),
        power_milliwatts=ask(unread, "power", pynvml.nvmlDeviceGetPowerUsage, handle),
    )
