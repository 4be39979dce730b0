"""The frameworks' own code, asked in processes of its own: what it imports is not ours to import."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.frameworks import PYTHON, Environment, NoFrameworks, bring, has_debian

PROBES = Path(__file__).parents[1] / "harness" / "probes"
TIMEOUT_S = 600  # of a busy machine; TensorFlow's import alone takes 8 s of a core

Ask = Callable[[Path, str, Any], Any]


@pytest.fixture(scope="session")
def ask() -> Ask:
    """Gives a question to a probe run by an interpreter, and gives its answer."""

    def asked(python: Path, probe: str, question: Any) -> Any:
        done = subprocess.run(
            [str(python), str(PROBES / probe)],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout)

    return asked


@pytest.fixture(scope="session")
def interpreter() -> Callable[[Environment], Path]:
    """Brings an environment; skips where it cannot be had."""

    def of(environment: Environment) -> Path:
        try:
            return bring(environment)
        except NoFrameworks as reason:
            pytest.skip(str(reason))

    return of


@pytest.fixture(scope="session")
def debian() -> Callable[[str], Path]:
    """Debian's Python with one of its packages; skips where that is not installed."""

    def of(package: str) -> Path:
        if not has_debian(package):
            pytest.skip(f"needs Debian's {package}: apt-get install it")
        return PYTHON

    return of
