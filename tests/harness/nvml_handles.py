"""Handles of NVML as the binding holds them: pointers, of which a stand-in for the library uses the number alone."""

import ctypes
from typing import Any


def address(handle: Any) -> int:
    """Which GPU a handle is of: its index + 1."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def set_address(handle: Any, address: int) -> None:
    """Makes it a handle of that number."""
    ctypes.memmove(ctypes.addressof(handle), ctypes.byref(ctypes.c_size_t(address)), ctypes.sizeof(ctypes.c_size_t))
