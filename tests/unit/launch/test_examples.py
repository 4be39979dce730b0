"""The manifests in examples/ are jobs that closeknit can launch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from closeknit.api.names import TRAINING_JOB
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import Framework
from closeknit.launch.template import check_template
from closeknit.scheduling.policy.supported import refusal

SCRIPTS = Path(__file__).parents[3] / "examples" / "scripts"
EXAMPLES = [
    (path.name, document)
    for path in sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if document.get("kind") == TRAINING_JOB
]


def _fields(document: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}


@pytest.mark.parametrize("document", [pytest.param(document, id=name) for name, document in EXAMPLES])
def test_an_example_is_a_job_that_can_be_launched(document: dict[str, object]) -> None:
    job = TrainingJob.parse_strictly(_fields(document))
    assert check_template(job) is None


def test_there_are_examples() -> None:
    assert {"pytorch-16gpu.yaml", "tensor-4.yaml", "too-large.yaml"} <= {name for name, _ in EXAMPLES}
    assert {TrainingJob.parse_strictly(_fields(document)).spec.framework for _, document in EXAMPLES} == set(Framework)


@pytest.mark.parametrize("document", [pytest.param(document, id=name) for name, document in EXAMPLES])
def test_an_example_asks_for_nothing_that_is_not_built(document: dict[str, object]) -> None:
    assert refusal(TrainingJob.parse_strictly(_fields(document)).spec) is None


@pytest.mark.parametrize("document", [pytest.param(document, id=name) for name, document in EXAMPLES])
def test_the_script_of_an_example_is_there(document: dict[str, Any]) -> None:
    templates = [document["spec"]["template"]]
    if servers := document["spec"].get("parameterServers"):
        templates.append(servers["template"])
    containers = [container for template in templates for container in template["spec"]["containers"]]
    named = [word for container in containers for word in container["command"] if word.startswith("/examples/")]
    assert all((SCRIPTS / word.removeprefix("/examples/")).is_file() for word in named)


def test_the_groups_of_the_example_are_those_that_placement_plans_by() -> None:
    """As Megatron-LM's own generator makes them: tests/fixtures/megatron."""
    source = (SCRIPTS / "groups.py").read_text().replace("import torch", "").replace(".distributed as dist", "")
    made: dict[str, Any] = {}
    exec(compile(source, "groups.py", "exec"), made)  # noqa: S102 - without PyTorch, which only its main needs
    found = made["all_groups"](16, tensor=2, context=1, pipeline=2, expert=2)
    assert found["tensor"][0] == [0, 1] and found["data"][0] == [0, 2, 4, 6] and found["pipeline"][0] == [0, 8]
    assert found["expert"][:3] == [[0, 2], [1, 3], [4, 6]]
    for kind in found.values():
        assert sorted(rank for group in kind for rank in group) == list(range(16))
