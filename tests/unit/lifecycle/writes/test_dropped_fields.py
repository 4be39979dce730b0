"""What one status adds to another, where it does nothing else."""

from typing import Any

import pytest

from closeknit.lifecycle.writes.dropped_fields import additions

CASES: dict[str, tuple[Any, Any, set[str] | None]] = {
    "nothing": ({"a": 1}, {"a": 1}, set()),
    "a field": ({"a": 1, "b": {"c": 2}}, {"a": 1}, {"status.b"}),
    "a field of a field": ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"status.a.c"}),
    "one of each in a list": ({"a": [{"b": 1}, {"b": 1}]}, {"a": [{}, {}]}, {"status.a[].b"}),
    "another value as well": ({"a": 2, "b": 1}, {"a": 1}, None),
    "another value inside": ({"a": {"b": 2, "c": 1}}, {"a": {"b": 1}}, None),
    "a field that goes": ({"b": 1}, {"a": 1}, None),
    "a longer list": ({"a": [1, 2]}, {"a": [1]}, None),
    "another type": ({"a": {"b": 1}}, {"a": [1]}, None),
}


@pytest.mark.parametrize(("wanted", "stored", "expected"), CASES.values(), ids=CASES.keys())
def test_additions(wanted: Any, stored: Any, expected: set[str] | None) -> None:
    assert additions(wanted, stored) == expected
