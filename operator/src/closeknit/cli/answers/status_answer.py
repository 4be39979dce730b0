"""The answer about the cluster as a whole."""

from closeknit.cli.answers.answer import Answer, AnswerPart


class GpuTotals(AnswerPart, frozen=True, kw_only=True):
    """GPUs by state."""

    free: int
    held: int
    mig: int
    """In MIG mode: given in parts, and never as a whole."""
    unusable: int
    excluded: int
    """On nodes that get no job."""


class LevelLine(AnswerPart, frozen=True, kw_only=True):
    """One level of the network."""

    name: str
    domains: int
    gpus: int
    free_gpus: int
    largest_gang: int | None
    """GPUs of the largest gang inside one domain; null where it was not counted."""


class DomainLine(AnswerPart, frozen=True, kw_only=True):
    """One domain of the innermost level around nodes."""

    name: str
    nodes: int
    gpus: int
    free_gpus: int


class WaitLine(AnswerPart, frozen=True, kw_only=True):
    """Jobs that wait for one reason."""

    reason: str
    jobs: int
    gpus: int
    since: str | None
    """Since when the one waits that has waited longest."""


class JobCounts(AnswerPart, frozen=True, kw_only=True):
    """Jobs, counted."""

    states: dict[str, int]
    waiting: tuple[WaitLine, ...]
    """By reason, the most GPUs first."""


class ClusterLine(AnswerPart, frozen=True, kw_only=True):
    """What the operator has counted over the whole cluster."""

    told: str | None
    """When any of it last changed."""
    operator_version: str | None
    nodes: int
    """Nodes with GPUs."""
    excluded_nodes: dict[str, int]
    """Those of them that get no job, by reason."""
    gpus: GpuTotals
    largest_gang: int | None
    """GPUs of the largest gang that could be placed now."""
    levels: tuple[LevelLine, ...]
    """Outermost first; host is the last."""
    islands: dict[str, int]
    """How many NVLink islands of free GPUs there are, by size."""
    domains: tuple[DomainLine, ...]
    """The ones with the most free GPUs."""
    jobs: JobCounts
    """Of all namespaces."""


class ClusterStatus(Answer, frozen=True, kw_only=True, tag="ClusterStatus"):
    """What `closeknit status` answers."""

    client_version: str
    cluster: ClusterLine | None
    """Null where it is not shown."""
    cluster_not_shown: str | None
    """Why it is not shown, and what to do."""
    namespace: str | None
    """Whose jobs these are; null: of all namespaces."""
    jobs: JobCounts
