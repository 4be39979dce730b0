"""The generated files are those that the models give, and a stale one is named with the command that mends it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from closeknit.api.crd.__main__ import ROOT, stale_files, write_files
from closeknit.api.crd.generated_files import generated_files


def test_no_generated_file_is_stale() -> None:
    said = stale_files(ROOT)
    assert not said, "\n".join([*said, "run: make generate"])


def test_the_text_is_the_same_in_every_process() -> None:
    """Sets of strings have another order in each process, unless the seed of their hashes is given."""
    code = "from closeknit.api.crd.generated_files import generated_files; print(sorted(generated_files().items()))"
    texts = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1] == f"{sorted(generated_files().items())}\n"


def test_a_stale_a_missing_and_a_left_over_file_are_named(tmp_path: Path) -> None:
    write_files(tmp_path)
    assert stale_files(tmp_path) == []
    (tmp_path / "crds/trainingjobs.yaml").write_text("apiVersion: v1\n")
    (tmp_path / "docs/reference/nodetopology.md").unlink()
    (tmp_path / "helm/closeknit/files/crds/racks.yaml").write_text("kind: Rack\n")
    assert stale_files(tmp_path) == [
        "crds/trainingjobs.yaml differs from the models",
        "docs/reference/nodetopology.md is missing",
        "helm/closeknit/files/crds/racks.yaml belongs to no kind; delete it",
    ]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the models and of what they generate, as in a repository."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "crds/src/closeknit/api", tmp_path / "crds/src/closeknit/api", ignore=ignored)
    write_files(tmp_path)
    return tmp_path


def test_a_changed_docstring_makes_the_check_fail_and_say_what_to_run(checkout: Path) -> None:
    model = checkout / "crds/src/closeknit/api/trainingjob.py"
    model.write_text(model.read_text().replace("How close the GPUs must be.", "How near the GPUs must be."))
    check = [sys.executable, "-m", "closeknit.api.crd", "--check"]
    done = subprocess.run(
        check, cwd=checkout, env={"PYTHONPATH": str(checkout / "crds/src")}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        1,
        "crds/trainingjobs.yaml differs from the models\n"
        "helm/closeknit/files/crds/trainingjobs.yaml differs from the models\n"
        "docs/reference/trainingjob.md differs from the models\n"
        "run: make generate\n",
    )
