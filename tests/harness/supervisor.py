"""Runs the programs of one LocalCluster and sees to it that none of them, nor their folder, outlives the owner.

A program of its own, started as `python supervisor.py FOLDER`, in its own session so that the terminal's Ctrl-C does
not reach it. Its standard input is a pipe from the owner. However the owner ends, the kernel closes that pipe; the
supervisor then kills its children and removes FOLDER. If the supervisor itself is killed, the kernel kills the
children (PR_SET_PDEATHSIG), and the owner removes the folder when it stops.

Standard library only, and run with `python -I -S`: it must be up in a few hundredths of a second.

Requests, one JSON object a line, are answered by one on standard output, or by `{"error"}`:
`{"name", "argv", "environment"}` starts a program with FOLDER as its working folder and FOLDER/logs/NAME.log as its
output: `{"pid"}`. `{"wait": pid}` waits for the end of one, `{"stop": pid}` ends it by SIGTERM; either ends it by
SIGKILL when it has taken too long: `{"status"}`.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1  # linux/prctl.h
LIBC = ctypes.CDLL(None, use_errno=True)
END_TIMEOUT_S = 10  # of a program that was told to end
WORK_TIMEOUT_S = 60  # of a program that ends by itself


class Children:
    """The programs that were started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._supervisor = os.getpid()
        self._children: list[subprocess.Popen[bytes]] = []

    def serve(self) -> None:
        """Does what is asked for until the owner ends."""
        signal.signal(signal.SIGCHLD, lambda *_: self._take_exit_statuses())
        for line in sys.stdin:
            request = json.loads(line)
            match request:
                case {"stop": pid}:
                    reply = self._end_of(pid, END_TIMEOUT_S, told=True)
                case {"wait": pid}:
                    reply = self._end_of(pid, WORK_TIMEOUT_S, told=False)
                case _:
                    reply = self._start(request)
            print(json.dumps(reply), flush=True)
            self._take_exit_statuses()  # also of one that ended before it was in the list

    def end(self) -> None:
        """Kills them all, the last first."""
        for child in reversed(self._children):
            child.kill()
        for child in self._children:
            child.wait()

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        with (self._folder / "logs" / f"{request['name']}.log").open("ab") as log:
            try:
                child = subprocess.Popen(
                    request["argv"],
                    cwd=self._folder,
                    env=request["environment"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=self._die_with_supervisor,  # noqa: PLW1509 - this process has one thread
                )
            except OSError as error:
                return {"error": str(error)}
        self._children.append(child)
        return {"pid": child.pid}

    def _end_of(self, pid: int, timeout_s: float, *, told: bool) -> dict[str, Any]:
        child = next((child for child in self._children if child.pid == pid), None)
        if child is None:
            return {"error": f"no program with the process id {pid} was started here"}
        if told:
            child.terminate()
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
        return {"status": child.wait()}

    def _die_with_supervisor(self) -> None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._supervisor:  # it ended between fork and prctl
            os._exit(1)
        for stop in (signal.SIGINT, signal.SIGHUP):  # ignored signals would stay ignored in the program
            signal.signal(stop, signal.SIG_DFL)

    def _take_exit_statuses(self) -> None:
        for child in self._children:  # whose ended processes else stay as zombies
            child.poll()


def main() -> None:
    folder = Path(sys.argv[1])
    for stop in (signal.SIGINT, signal.SIGHUP):
        signal.signal(stop, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    children = Children(folder)
    try:
        children.serve()
    finally:
        children.end()
        remove(folder)


def remove(folder: Path) -> None:
    """Removes the folder, also while a grandchild still writes into it."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main()
