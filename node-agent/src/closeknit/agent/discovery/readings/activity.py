"""What GPUs do at the moment: for people who look, and no reading, since nothing is concluded from it."""

import msgspec


class LiveGpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one GPU does at this moment; what the driver does not say is None."""

    index: int
    uuid: str | None = None
    utilization_percent: int | None = None  # of the time in which anything computed; not under MIG
    memory_used_bytes: int | None = None  # with what the driver keeps for itself
    temperature_celsius: int | None = None
    power_milliwatts: int | None = None
