"""What a YAML file would cost is told before anybody reads it."""

import pytest

from closeknit.cli.input.bounds import MAX_FILE_DEPTH, MAX_REPEATED, TOO_DEEP, too_much


def repeating(values: int, times: int) -> str:
    return "a: &a [" + ",".join("x" * (values - 1)) + "]\nb:\n" + "- *a\n" * times


REPEATED = f"repeats more than {MAX_REPEATED:,} values by YAML aliases"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(repeating(1000, 1000), None, id="as many as may be"),
        pytest.param(repeating(1000, 1001), REPEATED, id="one list more"),
        pytest.param("a: &a x\nb: [" + "*a, " * 1000 + "]", None, id="a scalar, often"),
        pytest.param("a: &a {b: [*a]}", None, id="one inside itself, which its reader refuses"),
        pytest.param("a: [*b]\nc: &b 1", None, id="one of nothing before it"),
        pytest.param("script: |\n  ls *.yaml &\n  find &done *all\n", None, id="a script that looks like it"),
        pytest.param("&a [*a", None, id="cut off"),
        pytest.param("a: 1\n---\n" + repeating(1000, 1001), REPEATED, id="a second document"),
        pytest.param("[" * MAX_FILE_DEPTH + "]" * MAX_FILE_DEPTH, None, id="as deep as may be"),
        pytest.param("[" * (MAX_FILE_DEPTH + 1), TOO_DEEP, id="one level more"),
        pytest.param("a: '\"'\nb: " + "[" * 1_000_000, TOO_DEEP, id="a million, after a quote that is none"),
        pytest.param("a: |\n" + "  echo '\\e[31m'\n" * 1000, None, id="a text of brackets that nothing closes"),
    ],
)
def test_what_is_too_much(content: str, expected: str | None) -> None:
    assert too_much(content) == expected
