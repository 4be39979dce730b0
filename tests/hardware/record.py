"""Records the machine that this runs on, and says where the agent and the others differ; by hand, on real GPUs.

PYTHONPATH=crds/src:node-agent/src:tests python3 -m hardware.record FOLDER STEM

Writes the recording, uuids and serial numbers replaced, and `STEM.report.json`: cells compared, those that differ, and
what reading the machine cost. Needs nvidia-smi; NCCL's graph needs PyTorch and is left out without it.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from closeknit.agent.discovery.readings import dump
from closeknit.agent.sources.hardware import HardwareSource
from hardware.agreement import cells
from hardware.recording import Recording, anonymised, write

NCCL_WAIT_S = 180.0
# Multicast can put GPUs that others share out of service.
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
READINGS = 5


def main() -> None:
    """Records, compares, reports."""
    folder, stem = Path(sys.argv[1]), sys.argv[2]
    seconds = []
    began = time.perf_counter()
    source = HardwareSource(Path("/"))
    for _ in range(READINGS):
        readings = source.read()
        seconds.append(round(time.perf_counter() - began, 3))
        began = time.perf_counter()
    recording = Recording(
        dump=dump.encode(readings),
        topo_m=_printed("nvidia-smi", "topo", "-m"),
        nvlink_s=_printed("nvidia-smi", "nvlink", "-s"),
        query_xml=_printed("nvidia-smi", "-q", "-x"),
        nccl_xml=_nccl_graph(len(readings.gpus)),
    )
    compared = cells(recording)
    report = {
        "gpus": len(readings.gpus),
        "cells": len(compared),
        "sources": {
            source: sum(cell.source == source for cell in compared) for source in sorted({c.source for c in compared})
        },
        "differ": [
            {"source": c.source, "subject": c.subject, "fact": c.fact, "ours": str(c.ours), "theirs": str(c.theirs)}
            for c in compared
            if not c.agrees
        ],
        "reading_seconds": seconds,
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
    write(folder, stem, anonymised(recording))
    (folder / f"{stem}.report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


def _printed(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def _nccl_graph(gpus: int) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.xml"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"]
        command.append(str(Path(__file__).with_name("nccl_graph.py")))
        environment = {**os.environ, **WITHOUT_MULTICAST, "NCCL_TOPO_DUMP_FILE": str(file)}
        ended = subprocess.run(command, env=environment, check=False, timeout=NCCL_WAIT_S)
        return file.read_text() if ended.returncode == 0 and file.exists() else None


if __name__ == "__main__":
    main()
