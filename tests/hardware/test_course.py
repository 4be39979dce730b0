"""The course, where there are GPUs; what it needs, and what is left out without them, is in the README beside this."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hardware.stack import AGENT_OPTIONS
from harness.build import ensure_built
from harness.chart import CHART, NAMESPACE, REGISTRY, helm

pytestmark = pytest.mark.hardware

ROOT = Path(__file__).parents[2]
WITHIN_OF_OUTSIDE = 0.98
PUBLISHED_WITHIN_S, DISCOVERED_WITHIN_S, MOST_CPU_PERCENT = 5.0, 2.0, 0.5


def test_jobs_reach_what_their_gpus_reach_outside(tmp_path: Path) -> None:
    chart = tmp_path / "chart.yaml"
    options = (f"--namespace={NAMESPACE}", REGISTRY, *AGENT_OPTIONS)
    chart.write_text(helm(ensure_built().helm, "template", "closeknit", str(CHART), *options))
    course = [sys.executable, "-m", "hardware.course", str(chart), str(tmp_path)]
    path = os.pathsep.join(str(ROOT / each) for each in ("crds/src", "operator/src", "node-agent/src", "tests"))
    subprocess.run(course, env={**os.environ, "PYTHONPATH": path}, check=True, timeout=600)
    found = json.loads((tmp_path / "result.json").read_text())
    runs, agent = found["runs"], found["agent"]
    reached = {(run["what"], run["way"]): run["bandwidths"].get("all-reduce", 0.0) for run in runs}
    slow = {
        what: (figure, reached[what, "outside"])
        for (what, way), figure in reached.items()
        if way == "TrainingJob"
        and (what, "outside") in reached
        and figure < WITHIN_OF_OUTSIDE * reached[what, "outside"]
    }
    assert not slow
    assert agent["first_published_s"] < PUBLISHED_WITHIN_S
    assert agent["discovery_s"]["first"] < DISCOVERED_WITHIN_S
    assert agent["cpu_percent"] < MOST_CPU_PERCENT
    assert [list(ways) for ways in agent["paths"].values()] == [["NVLink"]]
