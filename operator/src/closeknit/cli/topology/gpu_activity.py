"""What a GPU does at one moment, as its agent's /metrics say it. Pure."""

import re
from dataclasses import dataclass

_LINE = re.compile(r'closeknit_gpu_(\w{1,40})\{gpu="(\d{1,4})",uuid="[^"]{0,100}"\} ([0-9.e+-]{1,30})')


@dataclass(frozen=True, slots=True)
class GpuActivity:
    """What one GPU does; an unknown value is None."""

    utilization_ratio: float | None = None
    memory_used_bytes: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None


def moments(text: str) -> dict[int, GpuActivity]:
    """What an agent's /metrics say, by NVML index; lines that say nothing of a GPU are passed over."""
    found: dict[int, dict[str, float]] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is not None and match[1] in GpuActivity.__dataclass_fields__:
            try:
                found.setdefault(int(match[2]), {})[match[1]] = float(match[3])
            except ValueError:
                continue
    return {index: GpuActivity(**values) for index, values in found.items()}
