"""What a rank sees of itself, as one line of JSON."""

import json
import os
import socket
from pathlib import Path


def report(rank: int, world_size: int, local_rank: int, **more: object) -> None:
    """Prints it in one write, so that the lines of a Pod's ranks do not mix."""
    found = {
        "rank": rank,
        "world_size": world_size,
        "local_rank": local_rank,
        "devices": sorted(str(each) for each in Path("/dev").glob("nvidia[0-9]*")),
        "host": socket.gethostname(),
        "environment": dict(os.environ),
        **more,
    }
    os.write(1, (json.dumps({"report": found}) + "\n").encode())
