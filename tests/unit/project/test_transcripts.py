"""What the pages show of `closeknit` is what it prints, and fits 80 columns."""

from pathlib import Path

import pytest

from harness import transcripts


@pytest.mark.parametrize("page", transcripts.PAGES)
def test_what_is_shown_is_what_is_printed(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(transcripts.ROOT)
    shown = Path(page).read_text()
    assert shown == transcripts.text(page), "run: make generate"
    blocks = [each for each in shown.split("```console\n")[1:] if "closeknit " in each.splitlines()[0]]
    assert len(blocks) >= 2
    lines = [line for block in blocks for line in block.partition("```")[0].splitlines() if not line.startswith("$ ")]
    assert max(map(len, lines)) <= 80
