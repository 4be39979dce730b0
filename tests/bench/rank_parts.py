"""What of a gang exchanges anything, for the judges of rank orders: its stages and expert groups, and their bytes."""

from typing import NamedTuple, Self

from closeknit.placement.values.request import Request


class Parts(NamedTuple):
    """A gang of equal shares whose tensor and context groups stay inside a host; relative bytes, of all ranks."""

    stages: int
    size: int
    """Hosts of a stage."""
    groups: int
    """Expert groups of a stage that go over hosts, or the whole stage as one where none does."""
    width: int
    """Hosts of such a group."""
    ring: float
    """What two neighbours in the ring of a stage send each other."""
    chain: float
    """What two hosts at the same place of consecutive stages send each other."""
    pair: float
    """What two hosts of one expert group send each other."""

    @classmethod
    def of(cls, request: Request, hosts: int) -> Self:
        """Those of a gang over so many hosts."""
        ranks, traffic = request.gpus // hosts, request.traffic
        size = hosts // request.pipeline
        experts = request.tensor * request.expert // ranks if request.expert > 1 else 0
        groups = size // experts if experts > 1 else 1
        width = size // groups
        return cls(
            stages=request.pipeline,
            size=size,
            groups=groups,
            width=width,
            ring=traffic.data * request.tensor if size > 1 else 0.0,
            chain=traffic.pipeline * ranks,
            pair=2 * traffic.expert * request.tensor * request.expert / width**2 if experts > 1 else 0.0,
        )
