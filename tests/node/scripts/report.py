"""Tells what a process sees of itself: importing this writes it into a file of the node, as one object of JSON."""

import json
import os
import socket
from pathlib import Path

FOLDER = Path("/reports")  # of the node: what a log would mix up, or lose with its Pod, is whole there

report = {
    "host": socket.gethostname(),
    "devices": sorted(str(each) for each in Path("/dev").glob("nvidia[0-9]*")),
    "environment": dict(os.environ),
}
(FOLDER / f"{report['host']}-{os.getpid()}.json").write_text(json.dumps(report))
