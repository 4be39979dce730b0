"""The chart as Helm renders it."""

from pathlib import Path
from typing import Any

import pytest

from harness.build import ensure_built
from harness.chart import render

Object = dict[str, Any]


@pytest.fixture(scope="session")
def helm_program() -> Path:
    return ensure_built().helm


@pytest.fixture(scope="module")
def objects(helm_program: Path) -> dict[str, Object]:
    """Every object of the chart with its default values, as "Kind name"."""
    rendered = render(helm_program)
    named = {f"{each['kind']} {each['metadata']['name']}": each for each in rendered}
    assert len(named) == len(rendered)
    return named
