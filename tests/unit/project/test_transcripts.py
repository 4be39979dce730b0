"""What the pages show of `closeknit` is what it prints, and fits 80 columns."""

from pathlib import Path

import pytest

from harness import transcripts


@pytest.mark.parametrize("page", transcripts.PAGES)
def test_what_is_shown_is_what_is_printed(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(transcripts.ROOT)
    shown = Path(page).read_text()
    assert shown == transcripts.text(page), "run: make generate"
    blocks = shown.split("```console\n")[1:]
    assert len(blocks) >= 3
    lines = [line for block in blocks for line in block.partition("```")[0].splitlines() if not line.startswith("$ ")]
    assert max(map(len, lines)) <= 80
