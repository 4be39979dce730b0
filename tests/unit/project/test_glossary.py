"""The glossary's nouns: each stands once, and lives where the page says."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/glossary.md"
ROWS = re.findall(r"^\| ([^|`]+) \| ([^|]+) \| `([^`]+)` \|$", PAGE.read_text(), re.MULTILINE)
LINE_LENGTH = 120


def test_every_noun_stands_once() -> None:
    nouns = [noun for noun, _, _ in ROWS]
    assert len(nouns) > 25
    assert sorted(nouns) == sorted(set(nouns))


def test_a_meaning_has_two_lines_at_most() -> None:
    assert [noun for noun, meaning, _ in ROWS if len(meaning) > 2 * LINE_LENGTH] == []


@pytest.mark.parametrize("place", [row[2] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_noun_lives_where_the_page_says(place: str) -> None:
    try:
        importlib.import_module(place)
    except ModuleNotFoundError:
        module, _, name = place.rpartition(".")
        assert hasattr(importlib.import_module(module), name)


def test_every_row_was_read() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| noun")]
    assert len(rows) == len(ROWS)
