"""`make bench-plan`: `closeknit plan` as a whole process, on a file of 100 nodes as kubectl prints it.

The last line is one JSON object. The peer is what any Python tool does first: PyYAML's C loader on the same file.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from harness.big_cluster import objects

NODES = 100
RUNS = 5
EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch-16gpu.yaml"
_PYYAML = "import sys, yaml; yaml.load(open(sys.argv[1]), Loader=yaml.CSafeLoader)"


def main() -> None:
    """Prints the medians of whole processes, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "objects.yaml"
        file.write_text(
            yaml.dump({"apiVersion": "v1", "kind": "List", "items": objects(NODES)}, Dumper=yaml.CSafeDumper)
        )
        command = Path(sys.executable).parent / "closeknit"
        ours, peer = [], []
        for _ in range(RUNS):  # taking turns, so that both meet the same machine
            ours.append(_seconds(command, "plan", "-f", EXAMPLE, "--cluster", file, "-o", "json"))
            peer.append(_seconds(sys.executable, "-c", _PYYAML, file))
        figures = {
            "bench": "plan",
            "nodes": NODES,
            "file_mb": round(file.stat().st_size / 1e6, 2),
            "runs": RUNS,
            "plan_seconds": round(statistics.median(ours), 3),
            "pyyaml_load_seconds": round(statistics.median(peer), 3),
        }
        print(json.dumps(figures))


def _seconds(*command: str | Path) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
