"""The init container: it ends when the Pod's watch lets it go, and leaves what is known of the run before as its
termination message, where the operator reads it.
"""

import json
import signal
import socket
import sys
import time
from pathlib import Path

from closeknit.sidecar.run_folder import RunFolder

MESSAGE_PATH = Path("/dev/termination-log")
AGAIN_S = 0.05
# Longer than any reset takes, and than the operator waits for a dead node. A Pod that then fails is made again.
GIVES_UP_S = 600.0
_LONGEST = 4096


def wait(folder: RunFolder, message_path: Path = MESSAGE_PATH, *, gives_up_s: float = GIVES_UP_S) -> int:
    """Waits. Gives the exit code: 0 to go on, 1 where no next run can begin here."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as process 1 it would not end without
    until = time.monotonic() + gives_up_s
    while (left := until - time.monotonic()) > 0:
        said = _asked(folder, left)
        if said:
            message_path.write_text(said)
            return 0 if json.loads(said).get("run") is not None else 1
        time.sleep(AGAIN_S)
    message_path.write_text(json.dumps({"run": None, "why": f"the gang has not come together in {gives_up_s:.0f} s"}))
    return 1


def _asked(folder: RunFolder, left_s: float) -> str:
    """What the watch says; empty where it ended before, or is not there yet."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(left_s)
        try:
            asking.connect(folder.socket)
            asking.sendall(b"wait\n")
            said = b""
            while not said.endswith(b"\n") and len(said) < _LONGEST and (more := asking.recv(_LONGEST)):
                said += more
        except OSError:
            return ""
    return said.decode() if said.endswith(b"\n") else ""
