"""A bound from below on what any order of hosts sends across domains, as a mixed-integer program.

It counts how many hosts of each domain a stage and an expert group have, not where in them they stand. A ring crosses
at least once into each domain that has a part of it; of two stages as many pairs are near as the fuller domains allow;
an expert group exchanges what its numbers say, whatever its order. So no order sends less, and one that sends as much
is the best there is. rank_stages.py proves more, and quicker; what both prove, two ways of counting agree on.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import highspy
import numpy

from bench.rank_parts import Parts
from closeknit.placement.ranks.axis_traffic import Edges
from closeknit.placement.values.request import Request

SECONDS = 5.0  # for one program; what is proven by then is the bound


class _Program:
    """A program to minimise, built up variable by variable."""

    def __init__(self) -> None:
        self.solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self.solver.silent()
        self._infinite = highspy.kHighsInf

    def variable(self, most: float, price: float = 0.0, *, whole: bool = True) -> int:
        kind = highspy.HighsVarType.kInteger if whole else highspy.HighsVarType.kContinuous
        self.solver.addVar(0.0, most)
        number: int = self.solver.getNumCol() - 1
        self.solver.changeColCost(number, price)
        self.solver.changeColIntegrality(number, kind)
        return number

    def row(self, terms: Sequence[tuple[int, float]], least: float | None = None, most: float | None = None) -> None:
        at = numpy.array([number for number, _ in terms], dtype=numpy.int32)
        factors = numpy.array([factor for _, factor in terms], dtype=numpy.double)
        low = -self._infinite if least is None else least
        self.solver.addRow(low, self._infinite if most is None else most, len(terms), at, factors)

    def start(self, values: Sequence[tuple[int, int]]) -> None:
        """Values of some variables in a solution that is known, so that nothing dearer is looked for."""
        at = numpy.array([number for number, _ in values], dtype=numpy.int32)
        self.solver.setSolution(len(values), at, numpy.array([value for _, value in values], dtype=numpy.double))

    def bound(self) -> tuple[float, bool]:
        """The least that is proven, and whether it is reached."""
        self.solver.setOptionValue("time_limit", SECONDS)
        self.solver.setOptionValue("threads", 1)
        self.solver.run()
        info = self.solver.getInfo()
        is_reached = self.solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return (info.objective_function_value if is_reached else info.mip_dual_bound), is_reached


def crossing(domains: Sequence[tuple[str, ...]], edges: Edges) -> float:
    """What goes across domains in this order of hosts, summed over the levels."""
    return sum(
        weight * sum(a != b for a, b in zip(domains[one], domains[other], strict=True))
        for (one, other), weight in edges.items()
    )


def least_crossing(known: Sequence[tuple[str, ...]], request: Request) -> tuple[float, bool]:
    """What any order of these hosts sends across domains at least, and whether that is the program's optimum."""
    domains = list(known)
    stages, size, groups, width, ring, chain, pair = Parts.of(request, len(domains))
    leaves = sorted(set(domains))
    program = _Program()
    # Hosts of each leaf in each group of each stage.
    number = [
        [[program.variable(min(width, domains.count(leaf))) for leaf in leaves] for _ in range(groups)]
        for _ in range(stages)
    ]
    for column, leaf in enumerate(leaves):
        every = [(number[stage][group][column], 1.0) for stage in range(stages) for group in range(groups)]
        program.row(every, domains.count(leaf), domains.count(leaf))
    for stage in number:
        for group in stage:
            program.row([(each, 1.0) for each in group], width, width)
    for level in range(len(leaves[0])):
        names = sorted({leaf[level] for leaf in leaves})
        inside = [[column for column, leaf in enumerate(leaves) if leaf[level] == name] for name in names]
        met: list[list[list[tuple[int, float]]]] = []  # by stage and domain: its hosts there
        parts: list[list[tuple[int, int]]] = []  # by stage and domain: (used, whole)
        for stage in number:
            parts.append([])
            met.append([[(group[column], 1.0) for group in stage for column in columns] for columns in inside])
            for terms in met[-1]:
                if ring:
                    # A domain that has a part of a stage and not all of it is crossed into once.
                    used, whole = program.variable(1, ring), program.variable(1, -ring)
                    program.row([*terms, (used, -float(size))], most=0.0)
                    program.row([*terms, (whole, -float(size))], least=0.0)
                    program.row([(used, 1.0), (whole, -1.0)], least=0.0)
                    parts[-1].append((used, whole))
            for group in stage if pair else ():
                for columns in inside:
                    _squared(program, [(group[column], 1.0) for column in columns], width, pair)
        if ring:
            _implied(program, parts, [sum(domains.count(leaves[column]) for column in each) for each in inside], size)
        for before, after in pairwise(met):
            for one, other in zip(before, after, strict=True):
                near = program.variable(size, -chain)
                program.row([*one, (near, -1.0)], least=0.0)
                program.row([*other, (near, -1.0)], least=0.0)
    constant = len(leaves[0]) * (chain * size * (stages - 1) + stages * groups * pair * width**2 / 2)
    places = iter(known)
    start = [[next(places) for _ in range(width)] for _ in range(stages * groups)]
    rows = [group for stage in number for group in stage]
    program.start(
        [(row[at], group.count(leaf)) for row, group in zip(rows, start, strict=True) for at, leaf in enumerate(leaves)]
    )
    bound, is_reached = program.bound()
    return max(0.0, bound + constant), is_reached


def _implied(program: _Program, parts: list[list[tuple[int, int]]], hosts: Sequence[int], size: int) -> None:
    """What follows anyhow for whole numbers, and not for fractions of them."""
    for stage in parts:
        program.row([(whole, 1.0) for _, whole in stage], most=1.0)
        for used, whole in stage:  # a part is never alone
            others = [(each, 1.0) for each, _ in stage if each != used]
            program.row([*others, (used, -1.0), (whole, 1.0)], least=0.0)
    for column, held in enumerate(hosts):
        program.row([(stage[column][1], 1.0) for stage in parts], most=float(held // size))
        program.row([(stage[column][0], 1.0) for stage in parts], least=float(-(-held // size)))


def _squared(program: _Program, terms: Sequence[tuple[int, float]], most: int, price: float) -> None:
    """Pays half the price for the square of a sum, once it is known which number it is."""
    steps = [program.variable(1, -price * (2 * value - 1) / 2) for value in range(1, most + 1)]
    program.row([*terms, *((step, -1.0) for step in steps)], 0.0, 0.0)
    for lower, higher in pairwise(steps):
        program.row([(lower, 1.0), (higher, -1.0)], least=0.0)
