"""The preflight's program as processes of this machine: through its PyTorch, and where that is hidden."""

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from closeknit.launch.manifests.preflight_container import PROGRAM
from hardware.gpus import WITHOUT_MULTICAST

TIMEOUT_S = 60
NO_TORCH = 'raise ImportError("hidden by the course")\n'
UNREACHED = "100000"  # GB/s: a floor that has the slowest link looked for


def preflights(python: str, uuids: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """What it says, with `how` it measured: of one node with all these GPUs, and, where they can be halved, of two
    nodes with half of them each, which NCCL takes for two machines."""
    hidden = folder / "without-torch"
    hidden.mkdir()
    (hidden / "torch.py").write_text(NO_TORCH)
    half = len(uuids) // 2
    shapes = [[list(uuids)], *([[list(uuids[:half]), list(uuids[half : 2 * half])]] if half else [])]
    return [
        {
            "how": how,
            "ranks": [len(node) for node in nodes],
            "said": _said(python, nodes, folder, paths),
        }
        for how, paths in (("torch", ""), ("libnccl", str(hidden)))
        for nodes in shapes
    ]


def _said(python: str, nodes: Sequence[Sequence[str]], folder: Path, paths: str) -> list[dict[str, Any]]:
    """The termination message and the exit code of each node's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    told = [folder / f"preflight-{node}" for node in range(len(nodes))]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    processes = [
        subprocess.Popen(
            [python, "-c", PROGRAM],
            env={
                **own,
                **WITHOUT_MULTICAST,
                **({"PYTHONPATH": paths} if paths else {}),
                "CUDA_VISIBLE_DEVICES": ",".join(uuids),
                "NCCL_HOSTID": f"node-{node}",
                "CLOSEKNIT_PREFLIGHT": PROGRAM,
                "CLOSEKNIT_PREFLIGHT_RANKS": ",".join(str(len(each)) for each in nodes),
                "CLOSEKNIT_PREFLIGHT_NODE": str(node),
                "CLOSEKNIT_PREFLIGHT_MEET": f"localhost:{port}",
                "CLOSEKNIT_PREFLIGHT_FLOOR": UNREACHED if len(nodes) > 1 else "",
                "CLOSEKNIT_PREFLIGHT_ENFORCE": "1",
                "CLOSEKNIT_PREFLIGHT_RESULT": str(told[node]),
            },
            stdout=subprocess.DEVNULL,
        )
        for node, uuids in enumerate(nodes)
    ]
    codes = [process.wait(TIMEOUT_S) for process in processes]
    return [{"code": code, **json.loads(result.read_text())} for code, result in zip(codes, told, strict=True)]
