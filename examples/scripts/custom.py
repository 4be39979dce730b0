"""Whatever has a launcher of its own: starts a process for each GPU of its Pod, each with RANK and LOCAL_RANK."""

import os
import subprocess
import sys
from pathlib import Path

WORKER = """
import json, os, socket
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
print(json.dumps({**{name: os.environ[name] for name in names}, "host": socket.gethostname()}), flush=True)
"""


def main() -> int:
    # `<first rank> <ranks> <host>`, a line for each node in node-rank order
    nodes = [line.split() for line in Path("/etc/closeknit/ranks").read_text().splitlines()]
    assert sum(int(count) for _, count, _ in nodes) == int(os.environ["WORLD_SIZE"])
    first = int(os.environ["RANK"])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER], env={**os.environ, "RANK": str(first + local), "LOCAL_RANK": str(local)}
        )
        for local in range(int(os.environ["LOCAL_WORLD_SIZE"]))
    ]
    return max(process.wait() for process in processes)


if __name__ == "__main__":
    raise SystemExit(main())
