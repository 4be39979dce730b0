"""A run says in its last line what it skipped, and `--require-all` lets nothing be skipped but hardware."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
MARKERS = ["root: needs root", "hardware: needs GPUs", "long: takes long", "alone: asserts seconds"]
PARALLEL = ["-p", "xdist.plugin", "--numprocesses=2", "--dist=loadfile"]
RERUNS = ["-p", "pytest_rerunfailures"]
NOT_ROOT = "import os\nos.geteuid = lambda: 1000\n"  # whoever runs this test
SUITE = {
    "passes": "def test_it():\n    pass\n",
    "hardware": "import pytest\n@pytest.mark.hardware\ndef test_it():\n    pass\n",
    "root": "import pytest\n@pytest.mark.root\ndef test_it():\n    pass\n",
    "long": "import pytest\n@pytest.mark.long\ndef test_it():\n    pass\n",
    "skips itself": "import pytest\ndef test_it():\n    pytest.skip('no such program')\n",
    "file skipped": "import pytest\npytest.importorskip('no_such_module')\n",
    "fails": "def test_it():\n    assert False\n",
    "fails once": "from pathlib import Path\ndef test_it():\n    been = Path(__file__ + '.been')\n"
    "    was_here = been.exists()\n    been.touch()\n    assert was_here\n",
}


def lines(
    folder: Path, files: list[str], options: list[str], *, kind: str = "unit", named: bool = True
) -> tuple[int, list[str]]:
    """Exit code and output of a run of these files in a folder of this name under our conftest; where not `named`, by
    testpaths."""
    (folder / "conftest.py").write_text(NOT_ROOT + (TESTS / "conftest.py").read_text())
    (folder / kind).mkdir()
    for index, name in enumerate(files):
        (folder / kind / f"test_{index}.py").write_text(SUITE[name])
    markers = "\n  ".join(MARKERS)
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers\ntestpaths = .\nmarkers =\n  {markers}\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *RERUNS, *options, *(["."] if named else [])],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        # Without the plugins that nobody names: a third of a second each.
        env=os.environ | {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(TESTS)},
    )
    return done.returncode, done.stdout.splitlines()


def run(folder: Path, files: list[str], options: list[str], *, named: bool = True) -> tuple[int, str]:
    """Exit code and last line."""
    exit_code, output = lines(folder, files, options, named=named)
    return exit_code, output[-1]


@pytest.mark.parametrize(
    ("files", "options", "exit_code", "last_line"),
    [
        pytest.param(["passes"], [], 0, "nothing skipped", id="nothing was skipped"),
        pytest.param(
            ["passes", "hardware", "hardware"],
            ["--require-all"],
            0,
            "nothing skipped but 2 hardware (no GPUs: run by hand with --hardware)",
            id="hardware may always be skipped",
        ),
        pytest.param(["hardware"], ["--hardware"], 0, "nothing skipped", id="hardware is run when asked for"),
        pytest.param(
            ["passes", "hardware", "root", "skips itself", "file skipped"],
            [],
            0,
            "skipped: 1 hardware (no GPUs: run by hand with --hardware), 1 root (run as root), "
            "2 other (their reasons are above)",
            id="every kind of skip is counted",
        ),
        pytest.param(
            ["passes", "root"],
            ["--require-all"],
            1,
            "skipped: 1 root (run as root); --require-all: that is a failure",
            id="required, a test that needs root and has none fails the run",
        ),
        pytest.param(
            ["passes", "file skipped"],
            ["--require-all"],
            1,
            "skipped: 1 other (their reasons are above); --require-all: that is a failure",
            id="required, a file that skips itself fails the run",
        ),
        pytest.param(
            ["passes", "long"],
            ["--require-all"],
            0,
            "nothing skipped; 1 long left out (--long)",
            id="the long form of a test is left out, which is no skip",
        ),
        pytest.param(["long"], ["--long"], 0, "nothing skipped", id="the long form is run when asked for"),
        pytest.param(["fails"], ["--require-all"], 1, "nothing skipped", id="a failure stays a failure"),
        pytest.param(
            ["passes", "long", "root", "hardware"],
            [*PARALLEL, "--require-all"],
            1,
            "skipped: 1 hardware (no GPUs: run by hand with --hardware), 1 root (run as root); "
            "--require-all: that is a failure; 1 long left out (--long)",
            id="two processes count as one does",
        ),
        pytest.param(
            ["passes", "long", "hardware"],
            [*PARALLEL, "--require-all"],
            0,
            "nothing skipped but 1 hardware (no GPUs: run by hand with --hardware); 1 long left out (--long)",
            id="two processes may leave out what one may",
        ),
    ],
)
def test_last_line(tmp_path: Path, files: list[str], options: list[str], exit_code: int, last_line: str) -> None:
    assert run(tmp_path, files, options) == (exit_code, last_line)


@pytest.mark.parametrize(
    ("options", "exit_code", "last_line"),
    [
        pytest.param([], 0, "nothing skipped; only what needs nothing but Python (all: make test)", id="said"),
        pytest.param(
            ["--require-all"],
            1,
            "nothing skipped; only what needs nothing but Python (all: make test); --require-all: that is a failure",
            id="required, it fails the run",
        ),
    ],
)
def test_pytest_alone_is_not_all(tmp_path: Path, options: list[str], exit_code: int, last_line: str) -> None:
    assert run(tmp_path, ["passes"], options, named=False) == (exit_code, last_line)


@pytest.mark.parametrize("options", [[], PARALLEL], ids=["one process", "two processes"])
def test_an_unsteady_test_of_real_programs_runs_twice_and_is_named(tmp_path: Path, options: list[str]) -> None:
    exit_code, output = lines(tmp_path, ["passes", "fails once"], options, kind="node")
    assert (exit_code, output[-2:]) == (0, ["unsteady: node/test_1.py::test_it", "nothing skipped"])


def test_one_that_fails_twice_fails(tmp_path: Path) -> None:
    exit_code, output = lines(tmp_path, ["fails"], [], kind="cluster")
    assert exit_code == 1
    assert not [line for line in output if line.startswith("unsteady")]


@pytest.mark.parametrize("kind", ["unit", "scenarios", "contracts"])
def test_a_test_of_the_pure_core_never_runs_twice(tmp_path: Path, kind: str) -> None:
    exit_code, output = lines(tmp_path, ["fails once"], [], kind=kind)
    assert exit_code == 1
    assert not [line for line in output if line.startswith("unsteady")]


def test_pytest_alone_asks_for_no_cluster() -> None:
    """tests/cluster and tests/chart build a control plane: `make test` names them, `.ci/run` asks it for all."""
    settings = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["testpaths"] == ["tests/unit", "tests/scenarios", "tests/lives"]
    makefile = (TESTS.parent / "Makefile").read_text()
    assert "\ntest: control-plane" in makefile
    assert "\n\t@$(PYTEST) tests $(PYTEST_FLAGS)\n" in makefile
    assert 'make test PYTEST_FLAGS="--require-all"' in (TESTS.parent / ".ci" / "run").read_text()
