"""What asserts seconds runs beside no other test, in however many processes a run is."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

TESTS = Path(__file__).parents[2]
MOMENTS = """
import time
from pathlib import Path
import pytest

{mark}
@pytest.mark.parametrize("number", range(4))
def test_it(number):
    began = time.monotonic()
    time.sleep(0.05)
    with Path("moments").open("a") as moments:
        print(__name__, began, time.monotonic(), file=moments)
"""


def test_what_is_marked_alone_meets_no_other_test(tmp_path: Path) -> None:
    (tmp_path / "test_busy.py").write_text(MOMENTS.format(mark=""))
    (tmp_path / "test_quiet.py").write_text(MOMENTS.format(mark="@pytest.mark.alone"))
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  alone: asserts seconds\n  long: takes long\n")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist.plugin", "--numprocesses=2", "--dist=loadfile", "."],
        cwd=tmp_path,
        capture_output=True,
        check=True,
        env=os.environ | {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(TESTS)},
    )
    lines = [line.split() for line in (tmp_path / "moments").read_text().splitlines()]
    busy, quiet = (
        [(float(began), float(over)) for name, began, over in lines if name == each]
        for each in ("test_busy", "test_quiet")
    )
    assert len(busy) == len(quiet) == 4
    assert not any(one[0] < other[1] and other[0] < one[1] for one, other in product(busy, quiet))
