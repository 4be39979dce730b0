"""Others' text as it may stand in a message, a log line or on a terminal."""

import pytest

from closeknit.api.text.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("NVIDIA H200, 141 GB · größer", "NVIDIA H200, 141 GB · größer", id="what shows as itself"),
        pytest.param("a\r\nb\tc", "a\\r\\nb\\tc", id="lines and tabs"),
        pytest.param("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m", id="escape codes"),
        pytest.param("\x9b2J", "\\x9b2J", id="control codes above ASCII"),
        pytest.param("\u202eevil\u2066", "\\u202eevil\\u2066", id="bidirectional overrides"),
        pytest.param("a\u2028b\u2029c\x85d", "a\\u2028b\\u2029c\\x85d", id="line separators"),
        pytest.param("ad\u200bmin\ufeff", "ad\\u200bmin\\ufeff", id="no width"),
        pytest.param("\ud83d!", "\\ud83d!", id="half of a character"),
        pytest.param("\U000e0041", "\\U000e0041", id="tags"),
    ],
)
def test_what_does_not_show_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


@pytest.mark.parametrize(("text", "shown"), [("abcd", "abcd"), ("abcde", "abc…"), ("\x1b\x1b", "\\x1…")])
def test_a_bound_counts_what_is_shown(text: str, shown: str) -> None:
    assert printable(text, 4) == shown
