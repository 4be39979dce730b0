"""What Python 3.11 cannot ask of the kernel: namespaces and mounts. Standard library only."""

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
# linux/sched.h
NEW_MOUNTS, NEW_NAME, NEW_IPC, NEW_PROCESSES, NEW_NETWORK = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
# linux/mount.h
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000


def unshare(namespaces: int) -> None:
    """Gives this process new namespaces; a process namespace only its children. Raises OSError."""
    _check(LIBC.unshare(namespaces))


def enter_network(descriptor: int) -> None:
    """Moves this thread into the network namespace. Raises OSError."""
    _check(LIBC.setns(descriptor, NEW_NETWORK))


def mount(source: str, target: str, kind: str = "", flags: int = 0) -> None:
    """mount(2). Raises OSError."""
    _check(LIBC.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None), target)


def set_host_name(name: str) -> None:
    """Of this process' host name namespace. Raises OSError."""
    _check(LIBC.sethostname(name.encode(), len(name.encode())))


def _check(result: int, what: str = "") -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
