"""What a ClusterTopology's status says of the whole cluster, in numbers: no job and no namespace has its name in it."""

from typing import Annotated

from pydantic import Field, StringConstraints

from closeknit.api.wire import Timestamp, Wire

Count = Annotated[int, Field(ge=0)]
Word = Annotated[str, StringConstraints(max_length=64)]
MOST_DOMAINS = 32  # what a person reads; a cluster of 40,000 nodes has some 2,500 racks


class GpuCounts(Wire):
    """GPUs by state."""

    free: Count
    """That some job could be given."""
    held: Count
    """By jobs, Pods and claims of anybody."""
    mig: Count = 0
    """In MIG mode: given in parts, and never as a whole."""
    unusable: Count
    """That are not healthy, or that no Pod could be given."""
    excluded: Count
    """On nodes that get no job."""


class DomainSummary(Wire):
    """One domain of a level."""

    name: Annotated[str, StringConstraints(max_length=1024)]
    """Its name, after those of the domains around it: b1/r2."""
    nodes: Count
    """Nodes with GPUs in it."""
    gpus: Count
    """Their GPUs."""
    free_gpus: Count
    """Those of them that some job could be given."""


class WaitSummary(Wire):
    """Jobs that wait for one reason."""

    reason: Word
    """One of status.pending.reason of jobs; Undecided of those that were not looked at yet, Other of any other."""
    jobs: Count
    """How many."""
    gpus: Count
    """How many GPUs they ask for together."""
    since: Timestamp | None = None
    """Since when the one waits that has waited longest."""


class ClusterSummary(Wire):
    """The cluster at a glance."""

    told: Timestamp
    """When any of this last changed."""
    operator_version: Word
    """Version of the operator that tells it."""
    nodes: Count
    """Nodes with GPUs."""
    excluded_nodes: Annotated[dict[str, int], Field(max_length=16)] = {}
    """Those of them that get no job, by reason."""
    gpus: GpuCounts
    """Their GPUs by state."""
    largest_gang: Count | None = None
    """GPUs of the largest gang that could be placed now; absent before it was counted."""
    largest_inside: Annotated[dict[str, int], Field(max_length=32)] = {}
    """The same inside one domain of each level."""
    islands: Annotated[dict[str, int], Field(max_length=128)] = {}
    """How many NVLink islands of free GPUs there are, by size."""
    domains: Annotated[list[DomainSummary], Field(max_length=MOST_DOMAINS)] = []
    """Domains of the innermost level around nodes, the ones with the most free GPUs; empty without such a level."""
    jobs: Annotated[dict[str, int], Field(max_length=16)] = {}
    """Jobs by state."""
    waiting: Annotated[list[WaitSummary], Field(max_length=64)] = []
    """Those that wait, by reason, the most GPUs first."""
