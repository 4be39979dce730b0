"""What the torchrun of a machine makes of closeknit's environments, and of the argument that has none."""

import json
import subprocess
from pathlib import Path
from typing import Any

from closeknit.api.trainingjob import Framework
from contracts.gangs import environments, first_ranks, gang

PROBE = Path(__file__).parents[1] / "harness" / "probes" / "torch_launcher.py"
TIMEOUT_S = 120
GANGS = {
    "12 nodes of 2": gang(Framework.PYTORCH, (2,) * 12),
    "nodes of 2, 3 and 1": gang(Framework.PYTORCH, (2, 3, 1)),
    "one node of 4": gang(Framework.PYTORCH, (4,)),
    "elastic": gang(Framework.PYTORCH, (2,) * 12, elastic={"minGPUs": 5}),
}
NUMA = "import torch.distributed.run as run; run.parse_args(['--numa-binding=node', 'train.py'])"


def launcher(python: str) -> dict[str, Any]:
    """For each gang the ranks that torchrun would give and those planned, and what else it has understood; whether it
    knows --numa-binding, which has no variable (PyTorch 2.9 and later)."""
    question = json.dumps([environments(each) for each in GANGS.values()])
    told = subprocess.run(
        [python, str(PROBE)], input=question, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    if told.returncode:
        raise RuntimeError(told.stderr[-6000:])
    answers = json.loads(told.stdout.splitlines()[-1])
    gangs = [
        {"what": what, "planned": first_ranks(each), "ranks": answer["ranks"], "node": answer["nodes"][-1]}
        for (what, each), answer in zip(GANGS.items(), answers, strict=True)
    ]
    binding = subprocess.run([python, "-c", NUMA], capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    return {"gangs": gangs, "numa_binding": binding.returncode == 0}
