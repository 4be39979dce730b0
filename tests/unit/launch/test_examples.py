"""The manifests in examples/ are jobs that closeknit can launch."""

from pathlib import Path

import pytest
import yaml

from closeknit.api.names import TRAINING_JOB
from closeknit.api.objects import TrainingJob
from closeknit.launch.template import check_template

EXAMPLES = [
    (path.name, document)
    for path in sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if document.get("kind") == TRAINING_JOB
]


@pytest.mark.parametrize("document", [pytest.param(document, id=name) for name, document in EXAMPLES])
def test_an_example_is_a_job_that_can_be_launched(document: dict[str, object]) -> None:
    fields = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
    job = TrainingJob.parse_strictly(fields)
    assert check_template(job) is None


def test_there_are_examples() -> None:
    assert {"pytorch-16gpu.yaml", "tensor-4.yaml", "too-large.yaml"} <= {name for name, _ in EXAMPLES}
