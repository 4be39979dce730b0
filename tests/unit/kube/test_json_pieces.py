"""A document cut by its brackets: the same pieces that a decoder finds, whatever is inside of them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeknit.kube.json_pieces import elements, members

TEXTS = st.sampled_from(["", "a", "[,", "]}", '"', "\\", '\\",', ":", "\u00e4"])
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=10,
)


@given(st.lists(VALUES, max_size=4), st.sampled_from([None, 1]))
def test_the_elements_of_a_list(value: list[Any], indent: int | None) -> None:
    assert [json.loads(each) for each in elements(json.dumps(value, indent=indent).encode())] == value


@given(st.dictionaries(TEXTS, VALUES, max_size=4), st.sampled_from([None, 1]))
def test_the_members_of_an_object(value: dict[str, Any], indent: int | None) -> None:
    found = members(json.dumps(value, indent=indent).encode())
    assert {json.loads(b'"' + name + b'"'): json.loads(each) for name, each in found.items()} == value


def test_a_piece_may_be_anything_whose_brackets_match() -> None:
    assert elements(b'[NaN, {"a": \xff}, "\\ud800"]') == [b"NaN", b'{"a": \xff}', b'"\\ud800"']
    assert members(b'{"a": 1, "a": +2}') == {b"a": b"+2"}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param(b"", "it does not begin with [", id="nothing"),
        pytest.param(b"{}", "it does not begin with [", id="an object"),
        pytest.param(b"[1, [2]", "it is cut off", id="cut off"),
        pytest.param(b'[1, "2]', "it is cut off", id="cut off in a string"),
        pytest.param(b'[{"a": 1], 2]', "its brackets do not match", id="one closes the other"),
        pytest.param(b"[1], [2]", "something follows its end", id="two lists"),
    ],
)
def test_what_cannot_be_cut_is_refused(document: bytes, words: str) -> None:
    with pytest.raises(ValueError, match="^" + words.replace("[", r"\[") + "$"):
        elements(document)


@pytest.mark.parametrize("document", [b"{1: 2}", b'{"a" 1}', b"{a: 1}"])
def test_a_member_has_a_name(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"^a member of an object has no name$"):
        members(document)
