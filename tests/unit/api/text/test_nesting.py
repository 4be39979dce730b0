"""How deep a document is, and what becomes of one that is too deep: compared with what a decoder makes of it."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeknit.api.text.nesting import depth, is_deeper, is_surely_shallow, shallow

TEXTS = st.sampled_from(["", "a", "[[[", "]]", '"', "\\", '\\"]{', "}\\\\", "\u00e4"])
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=20,
)


def levels(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    return 1 + max(map(levels, value if isinstance(value, list) else value.values()), default=0)


def cut(value: Any, at: int) -> Any:
    """The value with every list and object below so many levels emptied."""
    if isinstance(value, dict):
        return {name: cut(inner, at - 1) for name, inner in value.items()} if at else {}
    if isinstance(value, list):
        return [cut(inner, at - 1) for inner in value] if at else []
    return value


@given(VALUES)
def test_it_is_as_deep_as_its_value(value: Any) -> None:
    assert depth(json.dumps(value).encode()) == levels(value)


@given(VALUES, st.integers(0, 4))
def test_what_is_too_deep_is_emptied_and_seen(value: Any, at: int) -> None:
    document = json.dumps(value).encode()
    left = shallow(document, at)
    assert json.loads(left) == cut(value, at)
    assert is_deeper(left, at) is is_deeper(document, at) is (levels(value) > at)


@given(VALUES, st.integers(1, 12), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_what_is_surely_shallow_is_no_deeper(value: Any, at: int, separators: tuple[str, str]) -> None:
    document = json.dumps(value, separators=separators).encode()
    assert not is_surely_shallow(document, at) or levels(value) <= at


@pytest.mark.parametrize("at", [1, 2, 5, 100])
@pytest.mark.parametrize("pair", ["[]", "{}"])
@pytest.mark.parametrize("beside", ["", "[],[],[],", '"[{",'])
def test_the_bound_itself_is_told_from_one_level_more(at: int, pair: str, beside: str) -> None:
    exact = (f"[{beside}" * (at - 1) + pair + "]" * (at - 1)).encode()
    assert levels(json.loads(exact)) == at
    assert not is_surely_shallow(exact, at - 1)
    if not beside.startswith('"'):
        assert is_surely_shallow(exact, at + 1)


@given(st.lists(st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"\\", b"a", b",", b":"]), max_size=12).map(b"".join))
def test_what_is_no_json_is_at_least_as_deep_as_a_decoder_gets(document: bytes) -> None:
    reached = level = 0
    is_inside = is_escaped = False
    for letter in document:
        if is_escaped:
            is_escaped = False
        elif letter == ord("\\"):
            if not is_inside:
                break  # there every decoder gives up
            is_escaped = True
        elif letter == ord('"'):
            is_inside = not is_inside
        elif not is_inside:
            level += (letter in b"[{") - (letter in b"]}")
            reached = max(reached, level)
    assert depth(document) >= reached


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(b"[" * 1_500_000, id="lists that never end"),
        pytest.param(b"[" * 101 + b"[],[[]]," * 150_000, id="up and down around the bound"),
        pytest.param(b'["' + b'[\\"' * 500_000, id="a string that never ends"),
        pytest.param(b'["' + b"\\" * 1_500_000, id="backslashes"),
        pytest.param(b'["a[",' * 250_000, id="strings that look like lists"),
    ],
)
def test_the_largest_object_of_an_api_server_takes_no_more_than_a_blink(document: bytes) -> None:
    began = time.process_time()
    shallow(document)
    # Measured on a core of its own: 0.01 to 0.7 s; what is not linear takes minutes.
    assert time.process_time() - began < 5
