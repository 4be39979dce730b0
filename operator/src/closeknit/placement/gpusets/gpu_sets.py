"""The search for sets of GPUs in one machine, as placement sees it.

exhaustive.py looks at every set, best_first.py at those that a job needs, and unsearched.py at none.
"""

from typing import Protocol

from closeknit.api.nodetopology import Transport
from closeknit.placement.allreduce.bandwidth import NicAccess, Nics, SetBandwidth
from closeknit.placement.gpusets.experts import NO_EXPERTS, Experts
from closeknit.placement.gpusets.set_facts import SetFacts
from closeknit.placement.gpusets.set_value import Measure, SetChoice, SetCriteria, Value


class GpuSets(Protocol):
    """The sets of GPUs of one topology class, as bit masks over positions. Memory changes no answer."""

    facts: SetFacts
    """What is true of a set in every search."""

    def learn(self) -> bool:
        """Works out a part of what jobs will ask of an empty machine. Whether there is more."""

    def bandwidth(self, mask: int, *, alone: bool) -> SetBandwidth | None:
        """Ring bandwidth inside a set that is all of a job, or a share of it; None where it is not predicted."""

    def nics(self, mask: int, transport: Transport, access: NicAccess) -> Nics:
        """The NICs that the GPUs of a set use, among those that it can be given."""

    def best(self, pool: int, ask: SetCriteria, floor: Value, by: Measure) -> float | None:
        """The most of one measure among the sets out of `pool` that reach the floor; None where none does."""

    def choose(
        self, pool: int, free: int, ask: SetCriteria, floor: Value, experts: Experts = NO_EXPERTS
    ) -> SetChoice | None:
        """The set out of `pool` to take from the `free` GPUs; None where none reaches the floor."""

    def is_indifferent(self, pool: int, ask: SetCriteria) -> bool:
        """Whether every set out of `pool` is a candidate and all are worth the same."""

    def is_foreseen(self, free: int, guessed: tuple[int, ...], unnamed: int, ask: SetCriteria) -> bool:
        """Whether all sets that NVIDIA's device plugin may give are candidates and worth the same.

        `unnamed` of the `free` GPUs have holders, and which these are is unknown. The holders of the `guessed` sets may
        have others instead that are joined as well.
        """
