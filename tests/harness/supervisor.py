"""Runs the programs of one LocalCluster and sees to it that none of them, nor their folder, outlives the owner.

A program of its own, started as `python supervisor.py FOLDER`, in its own session so that the terminal's Ctrl-C does
not reach it. Its standard input is a pipe from the owner. However the owner ends, the kernel closes that pipe; the
supervisor then kills its children and removes FOLDER. If the supervisor itself is killed, the kernel kills the
children (PR_SET_PDEATHSIG), and the owner removes the folder when it stops.

Standard library only, and run with `python -I -S`: it must be up in a few hundredths of a second.

Requests, one JSON object a line: `{"name", "argv", "environment"}` starts a program with FOLDER as its working folder
and FOLDER/logs/NAME.log as its output, and is answered by `{"pid"}` or `{"error"}` on standard output.
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

PR_SET_PDEATHSIG = 1  # linux/prctl.h
LIBC = ctypes.CDLL(None)


def main() -> None:
    folder = Path(sys.argv[1])
    supervisor = os.getpid()
    for stop in (signal.SIGINT, signal.SIGHUP):
        signal.signal(stop, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    children: list[subprocess.Popen[bytes]] = []

    def take_exit_statuses(*_: object) -> None:
        for child in children:  # whose ended processes else stay as zombies
            child.poll()

    signal.signal(signal.SIGCHLD, take_exit_statuses)

    def die_with_supervisor() -> None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # it ended between fork and prctl
            os._exit(1)
        for stop in (signal.SIGINT, signal.SIGHUP):  # ignored signals would stay ignored in the program
            signal.signal(stop, signal.SIG_DFL)

    try:
        for line in sys.stdin:
            request = json.loads(line)
            with (folder / "logs" / f"{request['name']}.log").open("ab") as log:
                try:
                    child = subprocess.Popen(
                        request["argv"],
                        cwd=folder,
                        env=request["environment"],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        preexec_fn=die_with_supervisor,  # noqa: PLW1509 - this process has one thread
                    )
                except OSError as error:
                    reply: dict[str, object] = {"error": str(error)}
                else:
                    children.append(child)
                    reply = {"pid": child.pid}
            print(json.dumps(reply), flush=True)
            take_exit_statuses()  # also of one that ended before it was in the list
    finally:
        for child in reversed(children):
            child.kill()
        for child in children:
            child.wait()
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
