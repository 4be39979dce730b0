"""torchrun's own parser and agents, given what closeknit sets: PyTorch 1.13, the one of Debian."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from closeknit.api.trainingjob import Framework
from contracts.conftest import Ask
from contracts.gangs import environments, first_ranks, gang

MANY = gang(Framework.PYTORCH, (2,) * 12)
UNEQUAL = gang(Framework.PYTORCH, (2, 3, 1))
ALONE = gang(Framework.PYTORCH, (4,))
ELASTIC = gang(Framework.PYTORCH, (2,) * 12, elastic={"minGPUs": 5})
ALL_OF_UNEQUAL = gang(Framework.PYTORCH, (2, 3, 1), elastic={"minGPUs": 6})
COORDINATOR = "train-a1-worker-00000.train-a1.ml.svc"


def test_torchrun_gives_every_process_the_rank_of_the_plan(ask: Ask, debian: Callable[[str], Path]) -> None:
    python = debian("python3-torch")
    gangs = [MANY, UNEQUAL, ALONE, ELASTIC]
    many, unequal, alone, elastic = ask(python, "torch_launcher.py", [environments(each) for each in gangs])
    assert [told["ranks"] for told in (many, unequal, alone, elastic)] == [first_ranks(each) for each in gangs]
    assert (
        many["nodes"]
        == [
            {
                "minimum": 12,
                "maximum": 12,
                "processes": 2,
                "backend": "static",
                "endpoint": f"{COORDINATOR}:29500",
                "run": "none",
            }
        ]
        * 12
    )
    assert [node["processes"] for node in unequal["nodes"]] == [2, 3, 1]
    assert alone["nodes"][0]["maximum"] == 1
    assert (
        elastic["nodes"]
        == [
            {
                "minimum": 12,
                "maximum": 12,
                "processes": 2,
                "backend": "c10d",
                "endpoint": f"{COORDINATOR}:29400",
                "run": "b3e7a5c0-0000-4000-8000-000000000000-1",
            }
        ]
        * 12
    )
    assert elastic["node_ranks"] == list(range(12))
    stores = [each["PET_RDZV_CONF"] for each in environments(ELASTIC)]
    assert [each.partition(",")[0] for each in stores] == ["is_host=true"] + ["is_host=false"] * 11
    assert {each["PET_NNODES"] for each in environments(ALL_OF_UNEQUAL)} == {"3:3"}


def test_torchrun_of_today_has_no_numa_binding_to_be_told(debian: Callable[[str], Path]) -> None:
    """Why closeknit adds no argument to the command: PyTorch before 2.9 ends at one that it does not know."""
    python = debian("python3-torch")
    code = "from torch.distributed.run import parse_args; parse_args(['--numa-binding=node', 'train.py'])"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "--numa-binding" in done.stderr) == (2, True)
