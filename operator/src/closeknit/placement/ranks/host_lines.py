"""Lines of equally many hosts, filled from domains so that few lines are split."""

from collections.abc import Iterator, Sequence
from itertools import permutations

LINE_STEPS = 100_000  # looks at what adds up, for one order: some 20 ms
FEW_DOMAINS = 5  # every sequence of them is tried: 60, as a sequence equals its reverse


def wound(labels: Sequence[int], length: int) -> Iterator[list[int]]:
    """The domains of all hosts, line after line, in every sequence of few domains and every other line backwards.

    A domain that a line has the end of begins the next one where the line ends, so that its hosts are at equal places.
    """
    if len(set(labels)) > FEW_DOMAINS:
        return
    for sequence in permutations(dict.fromkeys(labels)):
        if sequence[0] <= sequence[-1]:
            at = {label: place for place, label in enumerate(sequence)}
            order = sorted(labels, key=at.__getitem__)
            for first in range(length, len(order), 2 * length):
                order[first : first + length] = reversed(order[first : first + length])
            yield order


def filled(labels: Sequence[int], outer: Sequence[int], length: int) -> list[int]:
    """The domains of all hosts, line after line, from those of the hosts in fabric order.

    A domain fills as many lines as it can alone; what is left of several fills lines together where it adds up, domains
    of one outer domain (`outer`, by domain) first. The rest follows as it comes.
    """
    left: dict[int, int] = {}
    for label in labels:
        left[label] = left.get(label, 0) + 1
    lines: list[list[int]] = []
    for label, count in left.items():
        lines += [[label] * length] * (count // length)
        left[label] = count % length
    steps = LINE_STEPS
    for group in sorted({outer[label] for label in left}):
        steps = _add_up(left, [label for label in left if outer[label] == group], length, lines, steps)
    _add_up(left, list(left), length, lines, steps)
    first = {label: at for at, label in reversed(list(enumerate(labels)))}
    lines.sort(key=lambda line: [first[label] for label in line])
    rest = [label for label in labels if left[label]]
    return [label for line in lines for label in line] + _taken(rest, left)


def _taken(rest: Sequence[int], left: dict[int, int]) -> list[int]:
    found: list[int] = []
    for label in dict.fromkeys(rest):
        found += [label] * left[label]
    return found


def _add_up(left: dict[int, int], some: Sequence[int], length: int, lines: list[list[int]], steps: int) -> int:
    """Fills lines with what is left of some domains where it adds up exactly, of as few domains as can be; gives back
    the steps that are left."""
    while True:
        steps -= length * len(some)
        if steps < 0:
            return steps
        best: list[tuple[int, ...] | None] = [None] * (length + 1)
        best[0] = ()
        for label in some:
            if not left[label]:
                continue
            for have in range(length - left[label], -1, -1):
                base, reached = best[have], have + left[label]
                standing = best[reached]
                if base is not None and (standing is None or len(base) + 1 < len(standing)):
                    best[reached] = (*base, label)
        found = best[length]
        if not found:
            return steps
        lines.append([label for label in found for _ in range(left[label])])
        for label in found:
            left[label] = 0
