"""The difference of two versions of a table is what their keys and values say, whatever the order they iterate in."""

import random

import immutables
import pytest

from closeknit.cluster.store.difference import difference


class Value:
    """Equal to all others: only the object counts."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value)

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize("seed", range(40))
def test_it_names_each_key_that_has_another_object_and_each_that_has_none(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test that can be repeated
    before: immutables.Map[int, Value] = immutables.Map({key: Value() for key in range(chance.choice([0, 1, 40, 400]))})
    for _ in range(20):
        now = before
        for key in chance.choices(range(420), k=chance.randrange(6)):
            now = now.delete(key) if key in now and chance.random() < 0.4 else now.set(key, Value())
        found = difference(before, now)
        assert sorted(found.stored) == sorted(key for key in now if before.get(key) is not now[key])
        assert sorted(found.gone) == sorted(key for key in before if key not in now)
        before = chance.choice([before, now])


@pytest.mark.parametrize("seed", range(20))
def test_what_is_remembered_of_pairs_is_what_they_differ_in(seed: int) -> None:
    """Versions are asked for in any order, again and again, and most of them have gone by then."""
    chance = random.Random(seed)  # noqa: S311 - a test that can be repeated
    versions = [immutables.Map({key: Value() for key in range(5)})]
    for _ in range(200):
        last = chance.choice(versions)
        versions = [*versions[-2:], last.set(chance.randrange(7), Value()), last.delete(chance.choice([*last]))]
        versions = [each or last for each in versions]
        before, now = chance.choice(versions), chance.choice(versions)
        found = difference(before, now)
        assert sorted(found.stored) == sorted(key for key in now if before.get(key) is not now[key])
        assert sorted(found.gone) == sorted(key for key in before if key not in now)


def test_the_same_version_differs_in_nothing() -> None:
    table = immutables.Map({"a": Value()})
    assert difference(table, table) == ((), ())
