"""What a person sees: words that wrap, columns that are cut on a terminal alone, and colours where they are wanted."""

import io

import pytest

from closeknit.cli.output.page import Ink, Inked, Page, Paper, length


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(paper: Paper) -> list[str]:
    page = Page(paper)
    page.say(Inked("ml/train waits", Ink.CARE), ": NoNVLinkIsland")
    page.say("a word " * 20, indent=2)
    page.columns(("NAME", "MESSAGE"), [("train", "m" * 90), (Inked("b", Ink.BAD), "short")])
    return page.lines


def test_for_a_program_no_row_is_cut_and_nothing_has_a_colour() -> None:
    lines = drawn(Paper.of(io.StringIO(), {}))
    assert lines[0] == "ml/train waits: NoNVLinkIsland"
    assert lines[1].startswith("  a word") and all(len(line) <= 80 for line in lines[:3])
    assert lines[-3:] == ["NAME   MESSAGE", f"train  {'m' * 90}", "b      short"]


def test_on_a_terminal_the_last_column_is_cut_and_words_have_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = drawn(Paper.of(Terminal(), {"TERM": "xterm"}))
    assert lines[0] == "\x1b[33mml/train waits\x1b[0m: NoNVLinkIsland"
    assert lines[-2] == f"train  {'m' * 72}…" and len(lines[-2]) == 80
    assert lines[-1] == "\x1b[31mb\x1b[0m      short"


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}], ids=str)
def test_who_wants_no_colours_gets_none(environment: dict[str, str]) -> None:
    assert "\x1b" not in "".join(drawn(Paper.of(Terminal(), environment)))


def test_an_empty_variable_asks_for_nothing() -> None:
    """https://no-color.org: "when present and not an empty string"."""
    assert Paper.of(Terminal(), {"NO_COLOR": "", "TERM": "xterm"}).is_coloured


def test_a_long_paragraph_has_the_colour_of_its_headline_alone() -> None:
    page = Page(Paper(is_coloured=True))
    page.say(Inked("next step: ", Ink.STRONG), "a word " * 20)
    assert page.lines[0].startswith("\x1b[1mnext step:\x1b[0m a word") and "\x1b" not in "".join(page.lines[1:])


def test_words_of_others_cannot_write_on_the_terminal() -> None:
    page = Page(Paper(is_coloured=True))
    page.say("a\x1b[2Jb\nc")
    page.columns(("A",), [("x\x07",)])
    assert page.lines == ["a\\x1b[2Jb\\nc", "\x1b[2mA\x1b[0m", "x\\x07"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (185, "3m5s"), (3600, "60m"), (3 * 3600, "3h"),
     (3 * 3600 + 300, "3h5m"), (9 * 3600, "9h"), (47 * 3600, "47h"), (52 * 3600, "2d4h"), (30 * 86400, "30d")],
)  # fmt: skip
def test_how_long_it_is_as_kubectl_writes_it(seconds: float, words: str) -> None:
    assert length(seconds) == words


def test_on_a_narrow_terminal_columns_that_say_nothing_go_and_words_stand_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    headings = ("NAME", "QUEUE", "REASON", "MESSAGE")
    rows = [("a-job-of-a-name", "-", "NoNVLinkIsland", "there is no room for it anywhere"), ("b", "-", "-", "-")]
    narrow = Page(Paper.of(Terminal(), {"TERM": "dumb"}))
    narrow.columns(headings, rows, optional=("QUEUE", "MESSAGE"))
    assert narrow.lines == [
        "NAME             REASON",
        "a-job-of-a-name  NoNVLinkIsland",
        "  there is no room for it anywhere",
        "b                -",
    ]
    program = Page(Paper.of(io.StringIO(), {}))
    program.columns(headings, rows, optional=("QUEUE", "MESSAGE"))
    assert program.lines[0].split() == [*headings]
