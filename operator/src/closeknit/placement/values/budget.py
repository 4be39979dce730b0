"""How much one decision may search where there is more than can be tried: one budget of steps, in equal parts.

What a search may take is a function of the cluster and the job alone: not of the names of nodes, nor of what was
searched before it, nor of what is known from earlier decisions. So the budget is not spent by the first to come, but
goes in equal parts to the ways that are searched side by side, to the searches of a way, and to the areas of a level,
and a tree of many levels has less of it. A part is what is left after whole halvings, so that one node more or less
hardly ever changes it.

Outside of it are the ways that are searched one after the other until one has a layout, and the same decision for the
best that an empty cluster could give. A way has more searches than it was divided by where many bandwidths differ: for
each of its shapes that need the fewest domains there are as many as the number of those bandwidths has bits. What
follows from the number of nodes is outside, too: to look at each of them once in a search.
"""

from typing import NamedTuple

DECISION_STEPS = 1 << 20  # combinations of steps, some 0.3 s
SEARCHES = 8  # of one way, as a rule: a few shapes of shares, and thresholds of bandwidth
SEARCHES_OF_RAIL = 2  # of one set of indexes on isolated rails: how few domains do, and which nodes
FULL_LEVELS = 4  # of a tree that may take all of it: most have three
AREA_STEPS = 40_000  # that one area takes at most, some 10 ms


class Budget(NamedTuple):
    """Steps that may be taken."""

    steps: int = DECISION_STEPS

    def among(self, number: int) -> "Budget":
        """The part of each of so many."""
        return Budget(self.steps >> max(0, number - 1).bit_length())

    def below(self, levels: int) -> "Budget":
        """What there is of it for a tree of so many levels: each more is searched, too, and asks the next one more."""
        folds = -(-levels // FULL_LEVELS)
        return self.among(folds * folds)

    def of_areas(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """The steps of each area at each of some levels, from how many areas there are at each of them."""
        part = self.below(len(numbers))
        return tuple(min(AREA_STEPS, part.among(number).steps) for number in numbers)
