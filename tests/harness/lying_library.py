"""A driver's library that lies: calls that fail with any code, and answers with any bytes in them."""

import ctypes
import random
from collections.abc import Callable
from typing import Any

from closeknit.agent.discovery.readings.readings import Readings
from harness.nvml_library import NvmlLibrary

CODES = (*range(1, 31), 99, 999, 2**31)
NUMBERS = (0, 1, 2, 3, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
DOUBLES = (float("nan"), float("inf"), float("-inf"), -1.0, 1e308)
TEXTS = (b"", b"\x1b[31mred", b"\xff\xfe\xfd", b"GPU-\n\t\x07", b"%s%n", b"A" * 4096, "ü\u202e".encode())
# Calls that may fail, and tell no lies. Nothing is asked of a handle but that it is given back; what is written there
# is the driver's own.
TRUTHFUL = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlEventSetCreate",
    "nvmlEventSetWait_v2",
    # The binding makes as many structs as it is told of: what takes memory or time is the door's to end (test_door).
    "nvmlDeviceGetComputeRunningProcesses_v3",
)


class LyingLibrary(NvmlLibrary):
    """Of one machine. `fails` and `lies`: how many of its calls do so, 0 to 1; by `chance` alone."""

    def __init__(self, readings: Readings, chance: random.Random) -> None:
        super().__init__(readings)
        self.fails = self.lies = 0.0
        self._chance = chance

    def __getattr__(self, name: str) -> Callable[..., int]:
        call = super().__getattr__(name)

        def faulty(*arguments: Any) -> int:
            if self._chance.random() < self.fails:
                return int(self._chance.choice(CODES))
            code = call(*arguments)
            if name not in TRUTHFUL and self._chance.random() < self.lies:
                for argument in arguments:
                    self._spoil(getattr(argument, "_obj", argument))
                return 0
            return code

        return faulty

    def _spoil(self, target: Any) -> None:
        """Writes what is untrue into an answer; what is no answer stays."""
        match target:
            case ctypes.Structure():
                self._spoil_struct(target)
            case ctypes.Array() if target._type_ is ctypes.c_char:
                target.value = self._chance.choice(TEXTS)[: len(target) - 1]
            case ctypes.Array():
                for each in target[: self._chance.randint(0, len(target))]:
                    self._spoil(each)
            case ctypes.c_double() | ctypes.c_float():
                target.value = self._chance.choice(DOUBLES)
            case ctypes._SimpleCData() if isinstance(target.value, int) and not address_like(target):
                target.value = self._chance.choice(NUMBERS)  # cut to its size, as C does

    def _spoil_struct(self, struct: Any) -> None:
        """Any of its bytes; or one member, so that the others are believed."""
        size = ctypes.sizeof(struct)
        if self._chance.random() < 0.5:
            ctypes.memmove(ctypes.addressof(struct), self._chance.randbytes(size), size)
        else:
            start = self._chance.randrange(size)
            number = self._chance.choice(NUMBERS).to_bytes(8, "little")[: size - start]
            ctypes.memmove(ctypes.addressof(struct) + start, number, len(number))


def address_like(target: Any) -> bool:
    """Whether it is a pointer, and so a handle or a place to write to."""
    return isinstance(target, ctypes.c_void_p | ctypes.c_char_p)
