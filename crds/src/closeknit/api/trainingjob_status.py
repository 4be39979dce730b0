"""What a TrainingJob's status says: conditions, placement, and why it waits."""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from closeknit.api.trainingjob import MAX_GPUS, MAX_RESTARTS, MAX_SPARES, Duration
from closeknit.api.wire import Condition, Label, Message, Name, Timestamp, Uuid, Wire

_LONG = 1 << 20
_RESOURCE = 35 + 253  # characters: of a DeviceClass and the prefix that makes a resource of its name
_PART = r"^[-.a-z0-9]*$"
_NAMES = r"^[-.a-z0-9]*:[-.a-z0-9]*(,[-.a-z0-9]*)*$"
_RUNS = r"^[0-9]{1,18}([*][0-9]{1,5})?(,[0-9]{1,18}([*][0-9]{1,5})?)*$"
MAX_REPLACED = 64  # places of an attempt whose Pod was replaced; the names of further ones would not fit a variable
MAX_REPLACEMENTS = 999  # of one place
MAX_WARNINGS = 64  # about the settings of one job
MAX_AWAITED = 512  # jobs that make room for one: at some 200 bytes each, a fifteenth of what an object holds
_VERSION = r"^[0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,3}$"
_RANGES = r"^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$"
_FIRST_YEAR, _LAST_YEAR = 1970, 8999  # with room to add any length that a spec can name


def _is_moment(written: str) -> str:
    at = datetime.fromisoformat(written)
    if at.tzinfo is None or not _FIRST_YEAR <= at.year <= _LAST_YEAR:
        raise ValueError(f"a moment has a zone, and a year from {_FIRST_YEAR} to {_LAST_YEAR}")
    return written


def _is_dated(condition: Condition) -> Condition:
    _is_moment(condition.last_transition_time)
    return condition


# Decisions about other jobs read these, too: with one that nobody can reckon with, the job is one that cannot be read.
Moment = Annotated[Timestamp, AfterValidator(_is_moment)]
DatedCondition = Annotated[Condition, AfterValidator(_is_dated)]


class Binding(StrEnum):
    """How the GPUs of one node are bound to their Pod."""

    DRA = "DRA"
    WHOLE_NODE = "WholeNode"
    BEST_EFFORT = "BestEffort"


class Actual(StrEnum):
    """Whether the GPUs that a Pod really got are the planned ones."""

    UNKNOWN = "Unknown"
    VERIFIED = "Verified"
    MISMATCH = "Mismatch"


class State(StrEnum):
    """The one word of the STATUS column, derived from the conditions."""

    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class NodeAssignment(Wire):
    """The job's share of one node."""

    name: Name
    """Name of the node."""
    gpus: Annotated[list[Annotated[int, Field(ge=0, le=63)]], Field(max_length=64)]
    """NVML indexes of the chosen GPUs in local-rank order, true for topologyGeneration only."""
    mig_device: Uuid | None = None
    """UUID of the MIG device that the Pod has of that one GPU; absent: whole GPUs."""
    ranks: Annotated[str, StringConstraints(max_length=16)]
    """Global ranks on this node, for example 0-7; empty of a spare."""
    nics: Annotated[list[Label], Field(max_length=64)] | None = None
    """RDMA NICs that the Pod uses; absent: as the node before."""
    rdma_resource: Annotated[str, StringConstraints(max_length=_RESOURCE)] | None = None
    """The node's resource by which the Pod gets them, for example rdma/hca, or deviceclass.resource.kubernetes.io/ and
    the DeviceClass that its claim names; absent: as the node before."""
    binding: Binding
    """DRA, WholeNode or BestEffort."""
    topology_generation: Annotated[int, Field(ge=0)]
    """metadata.generation of the NodeTopology that the indexes speak of."""
    gpu_digest: Annotated[str, StringConstraints(max_length=16)] | None = None
    """Digest of the UUIDs of these GPUs in this order: by it the indexes still hold after another generation."""
    actual: Actual | None = None
    """Whether the Pod really got these GPUs: Verified, Mismatch or Unknown."""


class NodeKind(Wire):
    """What many nodes of a gang have in common."""

    gpus: Annotated[list[Annotated[int, Field(ge=0, le=63)]], Field(max_length=64)]
    """NVML indexes of the chosen GPUs in local-rank order."""
    nics: Annotated[list[Label], Field(max_length=64)] | None = None
    """RDMA NICs that the Pod uses."""
    rdma_resource: Annotated[str, StringConstraints(max_length=_RESOURCE)] | None = None
    """The node's resource by which the Pod gets them, for example rdma/hca, or deviceclass.resource.kubernetes.io/ and
    the DeviceClass that its claim names."""
    binding: Binding
    """DRA, WholeNode or BestEffort."""
    actual: Actual | None = None
    """Whether the Pod really got these GPUs: Verified, Mismatch or Unknown."""


class PackedNodes(Wire):
    """The nodes of a gang over so many that one by one they would not fit an object, in rank order."""

    names: Annotated[
        list[Annotated[str, StringConstraints(max_length=_LONG, pattern=_NAMES)]], Field(max_length=MAX_GPUS)
    ]
    """Of some nodes what their names have in common, and what of each follows it: a-:00001,00002."""
    start: Annotated[str, StringConstraints(max_length=253, pattern=_PART)] = ""
    """What every name begins with, before that."""
    end: Annotated[str, StringConstraints(max_length=253, pattern=_PART)] = ""
    """What every name ends with, for example .example.com."""
    kinds: Annotated[list[NodeKind], Field(max_length=MAX_GPUS)]
    """What nodes have in common."""
    kind: Annotated[str, StringConstraints(max_length=_LONG, pattern=_RUNS)]
    """The position in kinds of each node, from 0, and how many times it comes: 0*3,1."""
    generation: Annotated[str, StringConstraints(max_length=_LONG, pattern=_RUNS)]
    """metadata.generation of each node's NodeTopology that the indexes speak of, and how many times it comes."""

    @model_validator(mode="after")
    def _columns_agree(self) -> Self:
        count = sum(run.count(",") + 1 for run in self.names)
        if count > MAX_GPUS:
            raise ValueError(f"{count} nodes are more than {MAX_GPUS}")
        for column in (self.kind, self.generation):
            if sum(times for _, times in runs(column)) != count:
                raise ValueError(f"{count} nodes have names, and another number has the rest")
        if any(value >= len(self.kinds) for value, _ in runs(self.kind)):
            raise ValueError(f"a kind is none of the {len(self.kinds)}")
        return self


def runs(text: str) -> Iterator[tuple[int, int]]:
    """(value, how many times it comes) of a column."""
    for run in text.split(","):
        value, _, times = run.partition("*")
        yield int(value), int(times or 1)


class ParameterServerAssignment(Wire):
    """Node of one parameter server."""

    node: Name
    """Name of the node."""
    index: Annotated[int, Field(ge=0)]
    """Index of the parameter server."""


class AwaitedJob(Wire):
    """A job that makes room for another one: by its lower priority, or by a move that it allows."""

    namespace: Name
    """Namespace of the job."""
    name: Name
    """Name of the job."""
    uid: Annotated[str, StringConstraints(max_length=64)]
    """metadata.uid of the job."""
    attempt: Annotated[int, Field(ge=1)]
    """The attempt that ends by it."""
    moves: bool | None = None
    """True for one that allows to be moved (spec.defragment: Planned), and goes on elsewhere with as many GPUs."""


class RoomToGrow(Wire):
    """Room for more GPUs of an elastic job that runs with fewer than it asks for."""

    gpus: Annotated[int, Field(ge=1, le=MAX_GPUS)]
    """World size that there was room for when it was found."""
    since: Moment
    """Since when there has been room."""
    refused: Message | None = None
    """Why the API server does not take the job at that size, so that it stays as it is; absent while nothing is known
    against it."""


class PlacementStatus(Wire):
    """Where the job sits: the booking."""

    node_count: Annotated[int, Field(ge=0)]
    """Number of nodes."""
    gpus: Annotated[int, Field(ge=1, le=MAX_GPUS)] | None = None
    """World size of an elastic job that holds fewer GPUs than spec.gpus; absent where it holds all."""
    room: RoomToGrow | None = None
    """Room for more of them; it grows once that has lasted."""
    nodes: Annotated[list[NodeAssignment], Field(max_length=MAX_GPUS)]
    """Share of each node, in rank order; empty where packed tells them."""
    packed: PackedNodes | None = None
    """The nodes of a gang over more than 1,024 of them, in columns."""
    succeeded: Annotated[str, StringConstraints(max_length=65536, pattern=_RANGES)] | None = None
    """Positions in nodes, and after them in parameterServers, from 0 (for example 0-3,7), whose Pods ended with
    success: they are over though removed."""
    lost: Annotated[str, StringConstraints(max_length=65536, pattern=_RANGES)] | None = None
    """Positions, counted alike, whose nodes are lost: nothing is held on these, and the job waits for others in their
    place while it holds the rest."""
    replaced: (
        Annotated[dict[str, Annotated[int, Field(ge=1, le=MAX_REPLACEMENTS)]], Field(max_length=MAX_REPLACED)] | None
    ) = None
    """By position, counted alike: how many Pods had its place in this attempt before the one that has it now, which is
    part of that one's name; 1 at first for a node that was added to Pods that stay. Positions without any are left
    out."""
    swapping: bool | None = None
    """True while Pods of lost nodes are replaced, or come for added nodes, and the others of the attempt stay."""
    spares: Annotated[list[NodeAssignment], Field(max_length=MAX_SPARES)] | None = None
    """Nodes that are held to take the place of lost ones: without ranks and Pods."""
    awaits: Annotated[list[AwaitedJob], Field(max_length=MAX_AWAITED)] | None = None
    """Jobs that make room for this one, by their lower priority or by a move that they allow: it holds these GPUs for
    the moment when their Pods are gone, and has no Pod before. Absent once it has got them."""
    parameter_servers: Annotated[list[ParameterServerAssignment], Field(max_length=1024)] | None = None
    """Nodes of the parameter servers, which are nodes of the gang."""
    run: Annotated[int, Field(ge=0)] | None = None
    """How often its gang has started again in the same Pods; absent before it has."""
    levels: Annotated[dict[str, int], Field(max_length=16)] | None = None
    """How many domains of each level the job spans; absent where the network has no levels."""
    predicted_bus_bandwidth_gb_s: Annotated[float | None, Field(alias="predictedBusBandwidthGBps")] = None
    """Predicted bus bandwidth of an all-reduce of 1 GiB, in GB/s; absent where the network between nodes is unknown."""
    ideal_bus_bandwidth_gb_s: Annotated[float | None, Field(alias="idealBusBandwidthGBps")] = None
    """The best this cluster could give an empty, healthy copy of itself, in GB/s."""
    limited_by: Message | None = None
    """What limits the predicted bandwidth."""
    ended_at_budget: bool | None = None
    """True where a search ended at its budget of steps: this is the best it had found, and may not be the best."""


class Pending(Wire):
    """Why the job waits."""

    reason: Annotated[str, StringConstraints(max_length=64)]
    """One word of a closed list, for example NoNVLinkIsland."""
    message: Message
    """What was asked, what was found, what to do."""
    since: Moment
    """Since when the job waits for this reason."""
    queued_since: Moment | None = None
    """Since when it waits, for this reason and those before it: since it was submitted or resumed, or has run."""
    nearest: Annotated[list[Message], Field(max_length=16)] = []
    """The nearest changes that would make it fit, each of them checked."""
    estimated_start: Moment | None = None
    """When the job is expected to start, to the minute, by the ends that running jobs declare, and with time for what
    these are off by; message says which. Absent where nothing says so."""
    reserved_since: Moment | None = None
    """Since when GPUs are kept for it: meanwhile it stands first of its priority. Absent where none are."""


class UnfitNode(Wire):
    """A node that did not take a Pod of the job."""

    name: Name
    """Name of the node."""
    devices: Annotated[list[Uuid], Field(max_length=64)] | None = None
    """UUIDs of the GPUs, or the MIG device, that it did not give: the job avoids these alone. Absent: the node."""
    state: Annotated[str, StringConstraints(max_length=16)]
    """Hash of its labels, taints, resources and topology then: once they are others, the job may go there again."""


class BlamedDevice(Wire):
    """A node, or one GPU of it, that ended a run."""

    node: Name
    """Name of the node."""
    gpu: Uuid | None = None
    """UUID of the GPU; absent: the node."""


class Phases(Wire):
    """Where the time from a fault to the next run went, in whole seconds, which add up to the time between the two."""

    detect: Duration | None = None
    """From the fault, as its node dates it, until the end was written."""
    decide: Duration | None = None
    """From then until the next booking was written; 0s of a job that keeps its GPUs."""
    free: Duration | None = None
    """From then until its first Pod could be made: until pauses were over, and Pods in its way gone."""
    bind: Duration | None = None
    """From then until all its Pods were bound to their nodes."""
    start: Duration | None = None
    """From then until all of them ran."""
    first_step: Duration | None = None
    """From then until the first sign of progress; absent where none can be seen."""


class Exit(Wire):
    """The last words of one Pod of a gang that has failed."""

    pod: Name
    """Name of the Pod, which ends in its role and index."""
    node: Name | None = None
    """The node that it ran on."""
    exit_code: int | None = None
    """Exit code of the container that decides, or of the first one that failed; absent where it is unknown."""
    reason: Annotated[str, StringConstraints(max_length=64)] | None = None
    """The kubelet's reason, for example OOMKilled; absent where it only says Error."""
    message: Annotated[str, StringConstraints(max_length=256)] | None = None
    """Its termination message, cut short."""


class EndedAttempt(Wire):
    """One end of a run: by it the attempt ended, or started again in place."""

    number: Annotated[int, Field(ge=1)]
    """Number of the attempt, from 1."""
    reason: Annotated[str, StringConstraints(max_length=64)]
    """Why it ended, in CamelCase."""
    charged: bool
    """Whether it counts against restart.limit."""
    ended: Moment
    """When the end was written."""
    message: Annotated[str, StringConstraints(max_length=1024)] | None = None
    """Why it ended, in words."""
    in_place: bool | None = None
    """True: the gang started again in the same Pods, but for those of lost nodes, and the attempt of this number goes
    on. Absent: in new Pods, or not at all."""
    ran: Duration | None = None
    """How long all its ranks ran before; absent where they never ran all at once."""
    phases: Phases | None = None
    """How long it took until the gang ran again; absent where it was not to."""
    exits: Annotated[list[Exit], Field(max_length=8)] | None = None
    """Last words of the Pods that failed, the cause first, of the others those that ended first."""
    unfit: Annotated[list[UnfitNode], Field(max_length=16)] | None = None
    """Nodes, or GPUs of them, that were not given to its Pods: the job avoids each until the node changes, for ten
    minutes at most."""
    blamed: Annotated[list[BlamedDevice], Field(max_length=16)] | None = None
    """Nodes and GPUs that ended the run: one that ends two within seven days is placed last. Absent where none did."""


class LostTime(Wire):
    """What faults have cost the job, up to the last time that it began to run, or ended. Time before its first booking,
    and suspended time, does not count."""

    trained_seconds: Annotated[int, Field(ge=0)] = 0
    """How long all ranks ran. What was trained since the last checkpoint, and then trained again, is in it. A second
    with half of the GPUs that it asks for counts as half a second."""
    lost_gpu_seconds: Annotated[dict[str, int], Field(alias="lostGPUSeconds", max_length=40)] = {}
    """GPU-seconds that it did not train, by the reason of the end before: its GPUs times the seconds from the fault
    until all ranks ran again. Starting: from its booking until it first ran."""
    ettr: Annotated[float, Field(ge=0, le=1)] | None = None
    """Effective training time ratio: of the GPU-seconds since its first booking the share in which all ranks ran."""


class EnvironmentStatus(Wire):
    """What of the user's own environment matters."""

    skipped: Annotated[list[Label], Field(max_length=256)] = []
    """Variables of ours that the user's own value kept out."""
    warnings: Annotated[list[Message], Field(max_length=MAX_WARNINGS)] = []
    """Settings of the user's own that make training slow, wrong or impossible, or that do nothing, each with why and
    what to do."""
    nccl_version: Annotated[str, StringConstraints(max_length=11, pattern=_VERSION)] | None = None
    """Version of NCCL in its Pods, for example 2.28.9, as a preflight or NCCL's RAS has told; absent until one has."""


class TrainingJobStatus(Wire):
    """What closeknit says about the job."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The metadata.generation that this status speaks of."""
    state: State | None = None
    """One word derived from the conditions: Queued, Starting, Running, Restarting, Suspended, Succeeded or Failed."""
    reason: Annotated[str, StringConstraints(max_length=64)] | None = None
    """What is wrong or waited for, in one word: the reason of pending, or of the condition that tells it. Absent where
    all is well."""
    message: Message | None = None
    """The same in words."""
    restarts: Annotated[int, Field(ge=0)] | None = None
    """Times that the gang was to start again, in place or in new Pods."""
    conditions: Annotated[list[DatedCondition], Field(max_length=32)] = []
    """Admitted, Placed, PlacementVerified, Running, Succeeded, Failed, Suspended, Degraded."""
    attempt: Annotated[int, Field(ge=0)] | None = None
    """Number of the current attempt, from 1; written before any child of that attempt exists."""
    attempts: Annotated[list[EndedAttempt], Field(max_length=10)] = []
    """The last ten ends, restarts in place among them."""
    charges: Annotated[list[Moment], Field(max_length=MAX_RESTARTS)] | None = None
    """When charged restarts were, as far as they count: within restart.window."""
    start_time: Moment | None = None
    """When it first got GPUs since it was created or resumed: activeDeadlineSeconds counts from then."""
    cost: LostTime | None = None
    """What faults have cost the job; absent before it has run."""
    epoch: Annotated[int, Field(ge=0)] | None = None
    """Leader epoch that wrote the booking."""
    environment: EnvironmentStatus | None = None
    """What of the user's own environment matters."""
    placement: PlacementStatus | None = None
    """Where the job sits."""
    pending: Pending | None = None
    """Why the job waits."""
    patient_until: Moment | None = None
    """Until when the job waits at the latest for the level that it prefers, or for one machine, as it was told; it
    stays until the job runs, whatever it waits for meanwhile."""
    queued_since: Moment | None = None
    """Since when the job waits, while it holds GPUs by which it has not run yet: where they are taken back, it waits on
    with this age. Absent where pending says it, and once it runs."""

    @property
    def was_booked(self) -> bool:
        """Whether GPUs were booked for the job and not taken back before a gang of it was whole: from then on its spec
        is fixed (crd/rules.py says the same in CEL)."""
        return self.placement is not None or bool(self.attempts)

    @property
    def last_ended(self) -> int:
        """Number of the last attempt that has ended; 0 before the first."""
        return max((each.number for each in self.attempts if not each.in_place), default=0)
