"""Answers about jobs."""

from closeknit.cli.answers.answer import Answer, AnswerPart


class JobLine(AnswerPart, frozen=True, kw_only=True):
    """One job in a list."""

    namespace: str
    name: str
    state: str
    """Queued, Starting, Running, Restarting, Suspended, Succeeded or Failed."""
    reason: str | None
    """What is wrong or waited for, in one word; null where all is well."""
    message: str | None
    """The same in words."""
    gpus: int | None
    """Its world size; null where its spec cannot be read."""
    gpus_held: int | None
    """World size of an elastic job that holds fewer GPUs; null where it holds all, or none."""
    nodes: int | None
    """Nodes that it holds GPUs of."""
    predicted_bus_bandwidth_gb_s: float | None
    """Predicted bus bandwidth of an all-reduce, in GB/s."""
    ideal_bus_bandwidth_gb_s: float | None
    """The best that this cluster could give, in GB/s."""
    restarts: int
    since: str | None
    """Since when it is in this state."""
    created: str | None
    estimated_start: str | None
    """When it is expected to start; null where nothing says so."""
    queue: str | None
    priority_class_name: str | None


class JobList(Answer, frozen=True, kw_only=True, tag="JobList"):
    """What `closeknit jobs` answers."""

    namespace: str | None
    """Where they are; null: in all namespaces."""
    items: tuple[JobLine, ...]
    """Those that hold GPUs first, then those that wait, the longest first; those that are over last."""


class NextStep(AnswerPart, frozen=True, kw_only=True):
    """The one thing to do."""

    code: str
    """NearestChange: a change of the job with which it would fit now. Otherwise the reason that it answers."""
    text: str


class Where(AnswerPart, frozen=True, kw_only=True):
    """Where a job sits, and what that costs."""

    nodes: int
    gpus_held: int | None
    """World size of an elastic job that holds fewer GPUs than it asks for; null where it holds all."""
    levels: dict[str, int]
    """How many domains of each level it spans."""
    predicted_bus_bandwidth_gb_s: float | None
    ideal_bus_bandwidth_gb_s: float | None
    limited_by: str | None
    """What limits the predicted bandwidth."""
    ended_at_budget: bool
    """Whether the search for it ended early, so that there may be a better one."""
    lent: str | None
    """Which of its nodes were spares of another job or of a queue when it got them; null without any."""


class Run(AnswerPart, frozen=True, kw_only=True):
    """One end of a run."""

    attempt: int
    reason: str
    """Why it ended."""
    message: str | None
    ended: str | None
    charged: bool
    """Whether it counts against restart.limit."""
    in_place: bool
    """Whether it went on in the same Pods."""
    ran_seconds: int | None
    """How long all ranks ran before; null where they never ran all at once."""
    phases_seconds: dict[str, int]
    """Seconds until it ran again, by phase: detect, decide, free, bind, start, and firstStep after it."""
    blamed: tuple[str, ...]
    """Nodes, or node/GPU, that ended it."""
    exits: tuple[str, ...]
    """Last words of its Pods, the cause first."""


class PodLine(AnswerPart, frozen=True, kw_only=True):
    """One Pod of a job."""

    name: str
    node: str
    """Empty before it is bound."""
    status: str
    """As kubectl's column STATUS."""
    message: str
    restarts: int


class Explanation(Answer, frozen=True, kw_only=True, tag="Explanation"):
    """What `closeknit explain` answers."""

    namespace: str
    name: str
    state: str
    reason: str | None
    """What is wrong or waited for, in one word; null where all is well."""
    message: str | None
    """The same in words."""
    next_step: NextStep | None
    """Null where there is nothing to do."""
    since: str | None
    """Since when it is in this state."""
    waits_since: str | None
    """Since when it waits for GPUs, whatever for."""
    estimated_start: str | None
    """When it is expected to start, by the ends that running jobs declare; null where nothing says so."""
    gpus: int | None
    queue: str | None
    priority_class_name: str | None
    attempt: int
    restarts: int
    where: Where | None
    """Null while it holds nothing."""
    nearest: tuple[str, ...]
    """Changes with which it would fit now, the smallest first."""
    warnings: tuple[str, ...]
    """Settings of its own that do harm."""
    nccl_version: str | None = None
    """Version of NCCL in its Pods; null until a preflight or NCCL's RAS has told it."""
    runs: tuple[Run, ...]
    """Its last ten ends, the last one last."""
    trained_seconds: int | None
    """How long all ranks ran; null before it has run."""
    lost_gpu_seconds: dict[str, int]
    """GPU-seconds that it did not train, by why the run before ended."""
    ettr: float | None
    """Effective training time ratio: the share of the time since its first booking that all ranks ran."""
    pods: tuple[PodLine, ...] | None
    """Of its present attempt; null where they may not be read."""


class RankLine(AnswerPart, frozen=True, kw_only=True):
    """One rank."""

    rank: int
    local_rank: int
    node_rank: int
    node: str
    gpu: int
    """NVML index on its node."""
    uuid: str | None
    """Of its GPU or MIG device; null where it is not known."""
    pod: str
    pod_status: str | None
    """As kubectl's column STATUS; null where there is no such Pod, or it may not be read."""
    coordinates: dict[str, int]
    """Where it stands on each axis of the parallelism."""


class RankList(Answer, frozen=True, kw_only=True, tag="RankList"):
    """What `closeknit ranks` answers."""

    namespace: str
    name: str
    state: str
    attempt: int
    gpus_verified: bool | None
    """Whether every Pod is known to have got the planned GPUs; null where nobody has told."""
    items: tuple[RankLine, ...]
    spares: tuple[str, ...]
    """Nodes that are held to take the place of lost ones."""
