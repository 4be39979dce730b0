"""One row of a decision table: a fact that was found, and the variables that follow from it."""

from collections.abc import Callable
from dataclasses import dataclass

from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.variable import Variable


def _nothing(_gang: Gang, _member: Member) -> tuple[Variable, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class VariableRule:
    """A fact about a gang. Rows that hold are taken together; no two of them set one variable."""

    fact: str
    """In the words of a clause."""
    holds: Callable[[Gang], bool]
    sets: Callable[[Gang, Member], tuple[Variable, ...]] = _nothing
    """What it calls for in one member that has GPUs."""
    leaves: tuple[str, ...] = ()
    """Variables that people set for this fact, and that are better left to NCCL; no row that holds sets them unless a
    further fact is declared."""
