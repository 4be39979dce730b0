"""JAX itself, started with what closeknit sets; its hosts are this machine."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from closeknit.api.trainingjob import Framework
from contracts.conftest import PROBES, TIMEOUT_S
from contracts.gangs import environments, gang
from harness.frameworks import JAX, Environment
from harness.install import free_port


def test_each_process_is_the_node_rank_of_the_plan(interpreter: Callable[[Environment], Path]) -> None:
    python = interpreter(JAX)
    found = environments(gang(Framework.JAX, (4, 2)))
    assert {each["JAX_COORDINATOR_ADDRESS"] for each in found} == {"train-a1-worker-00000.train-a1.ml.svc:55527"}
    here = f"127.0.0.1:{free_port()}"
    processes = [
        subprocess.Popen(
            [str(python), str(PROBES / "jax_process.py")],
            env={"PATH": os.environ["PATH"], **each, "JAX_COORDINATOR_ADDRESS": here, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for each in found
    ]
    try:
        said = [process.communicate(timeout=TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], said
    assert [json.loads(out) for out, _ in said] == [
        {"process": rank, "processes": 2, "devices": 2} for rank in range(2)
    ]
