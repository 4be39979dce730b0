"""What a user asks for in a TrainingJob.

Everything in the spec but suspend, priorityClassName, queue, elastic and ttlSecondsAfterFinished is immutable once GPUs
were booked for the job; until then a mistake is mended by an edit.
"""

import json
import re
import zlib
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from math import lcm
from typing import Annotated, Any, ClassVar, Final, TypeVar, final

import msgspec
from pydantic import Field, GetCoreSchemaHandler, StringConstraints, model_validator
from pydantic_core import core_schema

from closeknit.api.text.quantity import DURATION_PATTERN, QUANTITY_PATTERN, duration_s, quantity
from closeknit.api.wire import FieldError, Label, Name, Wire

MAX_GPUS = 65_536  # so that a status of 8,192 nodes fits an object: tests/unit/api/test_sizes.py
MAX_TEMPLATE_BYTES = 256 * 1024  # of its spec; job, template and placement share the 1.5 MiB of one object in etcd
MAX_DEGREE = 4_096  # keeps the product of three degrees far below int64 in CEL
JOB_NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
JOB_NAME_MAX_LENGTH = 40  # {job}-a{attempt}-{role}-{index:05d} must fit the 63 characters of a host name
JOB_NAME_MESSAGE = (
    "a TrainingJob's name starts with a letter, has only lower-case letters, digits and dashes, does not end in a dash "
    f"and has at most {JOB_NAME_MAX_LENGTH} characters, so that the names of its Pods fit a host name"
)

# As the driver names them: of 1g.18gb with the media engines 1g.18gb+me, of a part of its compute 1c.2g.35gb.
MIG_PROFILE = r"^([1-9]c\.)?[1-9]g\.[1-9][0-9]{0,3}gb([+-][a-z]+(\.[a-z]+)*)*$"

Duration = Annotated[str, StringConstraints(max_length=32, pattern=DURATION_PATTERN)]
Quantity = Annotated[str, StringConstraints(max_length=32, pattern=QUANTITY_PATTERN)]
LEAST_EGRESS, MOST_EGRESS = "1k", "1P"  # of the CNI bandwidth plugin; with another no Pod starts
EGRESS_MESSAGE = f"network.egressBandwidth is from {LEAST_EGRESS} to {MOST_EGRESS}"
# A restart in new Pods takes some ten seconds: within a shorter window no second one could ever be counted.
LEAST_WINDOW, MOST_WINDOW = "1m", "8760h"
# CEL reads a duration in 64 bits of nanoseconds, 292 years: these digits stay below it.
WINDOW_PATTERN = "^([0-9]{1,4}h|[0-9]{1,6}m|[0-9]{1,8}s){1,4}$"
WINDOW_MESSAGE = (
    f"restart.window is from {LEAST_WINDOW} to {MOST_WINDOW}: a restart takes seconds, and within a shorter window no "
    "second one could be counted; leave it out for 24h"
)
LEAST_STALL = "10s"
STALL_MESSAGE = (
    f"restart.stallDeadline is from {LEAST_STALL} to {MOST_WINDOW}: progress is looked for every few seconds, and by a "
    "shorter one every run would hang; 30m is usual, and longer than a checkpoint takes"
)
RULES_DISAGREE_MESSAGE = (
    "restart.rules name one exit code with two different actions; keep it in the rule that you mean, and take it out "
    "of the others"
)
NO_LIMIT_MESSAGE = (
    "restart.rules has the action Restart, which is charged, and restart.limit is 0, so that it could never restart; "
    "set restart.limit to 1 or more, or the action to RestartFree or Fail"
)
NO_LIMIT_FOR_HANGS_MESSAGE = (
    "restart.onHang is Restart, which is charged, and restart.limit is 0, so that it could never restart; set "
    "restart.limit to 1 or more, or leave restart.onHang out"
)
BREAKS_GROUPS_MESSAGE = (
    "elastic.minGPUs would break a group of ranks: tensor x context x pipeline must divide it, expert must divide "
    "minGPUs / (tensor x pipeline), and topology.gpusPerNode, if set, must divide it; set a multiple of these"
)
MAX_RESTARTS = 1000  # charged ones; status.charges keeps a moment of each, 24 bytes
MAX_SPARES = 64  # nodes: one of twenty-five of 12,800 GPUs in eights
Degree = Annotated[int, Field(ge=1, le=MAX_DEGREE)]


class Framework(StrEnum):
    """Launch contract of the job's processes."""

    PYTORCH = "PyTorch"
    DEEPSPEED = "DeepSpeed"
    HOROVOD = "Horovod"
    MPI = "MPI"
    TENSORFLOW = "TensorFlow"
    JAX = "JAX"
    CUSTOM = "Custom"


class NvlinkPolicy(StrEnum):
    """Whether GPUs of one group must share an NVLink island."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"
    IGNORED = "Ignored"


class RdmaPolicy(StrEnum):
    """Whether traffic between nodes must use RDMA."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"
    DISABLED = "Disabled"


class BindingPolicy(StrEnum):
    """How the job wants its GPUs bound to its Pods."""

    AUTO = "Auto"
    DRA = "DRA"
    WHOLE_NODE = "WholeNode"
    BEST_EFFORT = "BestEffort"


class Defragment(StrEnum):
    """When a running job may be moved to gather free GPUs."""

    NEVER = "Never"
    ON_RESTART = "OnRestart"
    PLANNED = "Planned"


class Preflight(StrEnum):
    """Whether a short all-reduce is run on the chosen GPUs before the trainer starts."""

    NEVER = "Never"
    WARN = "Warn"
    ENFORCE = "Enforce"


class RestartAction(StrEnum):
    """What a matching exit code does to the job."""

    FAIL = "Fail"
    RESTART = "Restart"
    RESTART_FREE = "RestartFree"


class OnHang(StrEnum):
    """What a hang does to the job."""

    WARN = "Warn"
    RESTART = "Restart"


T = TypeVar("T")
Bytes = Annotated[float, Field(ge=0, le=1_000_000)]


def is_window(text: str) -> bool:
    """Whether the duration is one that restarts may be counted in."""
    return _is_from(LEAST_WINDOW, text)


def _is_from(least: str, text: str) -> bool:
    """Whether the duration is from that one to a year."""
    return bool(re.fullmatch(WINDOW_PATTERN, text)) and duration_s(least) <= duration_s(text) <= duration_s(MOST_WINDOW)


class Traffic(Wire):
    """What a rank sends in one step on each axis, relative to the other axes: it decides the order of nodes."""

    data: Bytes | None = None
    """Gradients, round the data-parallel group. Default 1; with experts 0.3."""
    pipeline: Bytes | None = None
    """Activations, to the next stage. Default 0.1."""
    expert: Bytes | None = None
    """Tokens, to the other experts. Default 1."""


class Parallelism(Wire):
    """Degrees of model parallelism; data parallelism is what remains of gpus."""

    tensor: Degree = 1
    """Tensor-parallel degree: ranks that split every layer. They talk the most and are placed closest. Default 1."""
    context: Degree = 1
    """Context-parallel degree: ranks that split the sequence. Default 1."""
    pipeline: Degree = 1
    """Pipeline-parallel degree: number of stages. Default 1."""
    expert: Degree = 1
    """Expert-parallel degree; divides context times data, that is gpus / (tensor x pipeline). Its groups are kept on
    one node each, and there in one NVLink island, where a machine holds them and there is a choice. Default 1."""
    traffic: Traffic | None = None
    """How much is sent on each axis, where it is known better than the defaults."""


class FabricRequest(Wire):
    """Levels of the network between nodes that the job should stay inside."""

    required: Label | None = None
    """Level of ClusterTopology inside one domain of which the whole job must sit, for example block."""
    preferred: Label | None = None
    """Level of ClusterTopology inside one domain of which the job should sit, for example rack. Where the cluster has
    no such level the job is placed without it, and its condition Admitted says so."""
    patience: Duration = "0s"
    """How long to wait at most for the preferred level before the best available placement is taken. Default 0s. A job
    that is too large for that level waits for the next one outwards that could hold it, and only while four smaller
    jobs or more of its priority or a higher one wait for room and no room is kept for it; otherwise it takes the best
    available placement at once.
    A job without a preferred level and without groups that fits into one machine waits for one for half an hour from
    when it could have several, unless little bandwidth is predicted to be lost; preferred: host with a patience changes
    that.
    """


class TopologyRequest(Wire):
    """How close the job's GPUs must be."""

    nvlink: NvlinkPolicy = NvlinkPolicy.PREFERRED
    """Required, Preferred or Ignored: whether each tensor x context group, or without one each node's share, must share
    an NVLink island. Required also keeps a gang to machines of one GPU product; the others mix products where nothing
    else exists, Ignored NVLink generations in one group, too. Ignored also takes several machines at once where one has
    no room. Default Preferred."""
    fabric: FabricRequest = FabricRequest()
    """Network levels that the job should stay inside."""
    gpus_per_node: Annotated[int, Field(ge=1, le=64)] | None = None
    """Exact number of ranks on every node; divides gpus."""
    min_bus_bandwidth_gb_s: Annotated[
        Annotated[float, Field(ge=0, le=100_000)] | None, Field(alias="minBusBandwidthGBps")
    ] = None
    """Refuse placements whose all-reduce of 1 GiB is predicted below this bus bandwidth, in GB/s."""


class GpuRequest(Wire):
    """Which GPUs the job accepts and how they are bound."""

    products: Annotated[list[Label], Field(max_length=16)] = []
    """Accepted GPU products, as in the label closeknit.dev/gpu.product; empty accepts every product."""
    min_memory: Quantity | None = None
    """Smallest memory of a GPU, for example 80Gi."""
    binding: BindingPolicy = BindingPolicy.AUTO
    """Auto, DRA, WholeNode or BestEffort. Auto takes the strongest that each node offers. Default Auto."""
    allow_shared: bool = False
    """Whether GPUs that a device plugin shares by time slices or MPS are accepted: one for each Pod. Default false."""
    mig: Annotated[str, StringConstraints(max_length=32, pattern=MIG_PROFILE)] | None = None
    """MIG profile, for example 1g.18gb: the job gets one MIG device of it in place of a GPU; only with gpus: 1."""


class NetworkRequest(Wire):
    """What the job asks of the network between nodes."""

    rdma: RdmaPolicy = RdmaPolicy.PREFERRED
    """Required, Preferred or Disabled. Default Preferred."""
    traffic_class: Label | None = None
    """Name of a traffic class of ClusterTopology, for example training."""
    egress_bandwidth: Quantity | None = None
    """Limit of what each Pod sends over the Pod network, in bits per second, from 1k to 1P, for example 10G. It takes a
    network with the CNI bandwidth plugin; RDMA does not pass it."""
    allow_host_network: bool = False
    """Whether Pods may use the host's network where RoCE NICs have their addresses there alone. Default false."""


class StorageRequest(Wire):
    """What the job asks of storage."""

    gpu_direct: bool = False
    """Only nodes with GPUDirect Storage, whose devices come into the Pods (NVIDIA_GDS). Default false."""


class TemplateMetadata(Wire):
    """Labels and annotations that the job's Pods get."""

    labels: Annotated[dict[str, Label], Field(max_length=64)] = {}
    """Labels of the Pods."""
    annotations: Annotated[dict[str, Annotated[str, StringConstraints(max_length=4096)]], Field(max_length=64)] = {}
    """Annotations of the Pods."""
    # Generators of manifests write it into every template, always null; under strict validation kubectl refuses a field
    # that is not declared.
    creation_timestamp: (
        Annotated[str, StringConstraints(max_length=0), Field(json_schema_extra={"nullable": True})] | None
    ) = None
    """Null, as generators of manifests write it; the Pods' own is the API server's."""


class PodTemplate(Wire):
    """A PodTemplateSpec: typed labels and annotations, and an opaque Pod spec that the API server judges."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations of the Pods."""
    spec: dict[str, Any]
    """The PodSpec. The container named trainer, or the only one, gets the GPUs."""


# By these a Pod chooses its nodes, and decisions ask them of every node. A list of names weighs eight times its JSON.
_CHOOSING = ("nodeSelector", "affinity", "tolerations")
_PER_CHOSEN_BYTE = 8


@final
class PackedTemplate:
    """A PodTemplate as compressed JSON, which is rarely read: 256 KiB of JSON are 4.5 MB of Python's objects, and
    thousands of jobs may wait.

    Templates of equal content are equal, in whatever order their objects' members were written.
    """

    holds: ClassVar[type[Wire]] = PodTemplate

    __slots__ = ("__weakref__", "_facts", "packed", "spec_bytes", "weight_bytes")

    def __init__(self, packed: bytes, spec_bytes: int, weight_bytes: int) -> None:
        self.packed = packed
        """Empty of one that was dropped."""
        self.spec_bytes = spec_bytes
        """Of its spec as JSON."""
        self.weight_bytes = weight_bytes
        """What it takes in memory, with what decisions keep of it; also of one that was dropped."""
        self._facts: dict[Callable[[PodTemplate], Any], Any] = {}

    @classmethod
    def of(cls, template: PodTemplate) -> "PackedTemplate":
        """The template, packed."""
        metadata, spec = _written(template.metadata.model_dump(exclude_defaults=True)), _written(template.spec)
        chosen = {field: template.spec[field] for field in _CHOOSING if template.spec.get(field)}
        packed = zlib.compress(b"[%b,%b]" % (metadata, spec))
        return cls(packed, len(spec), len(packed) + (_PER_CHOSEN_BYTE * len(_written(chosen)) if chosen else 0))

    @property
    def is_dropped(self) -> bool:
        """Whether only the API server has it."""
        return not self.packed

    def dropped(self) -> "PackedTemplate":
        """What is kept where only the API server is to have it: that there is one, and how large it is."""
        return PackedTemplate(b"", self.spec_bytes, self.weight_bytes)

    @property
    def metadata(self) -> TemplateMetadata:
        """Labels and annotations of the Pods."""
        return self.read().metadata

    @property
    def spec(self) -> dict[str, Any]:
        """The PodSpec, to be read and not to be changed."""
        return self.read().spec

    def read(self) -> PodTemplate:
        """The template, unpacked, to be read and not to be changed. Raises ValueError for one that was dropped."""
        if self.is_dropped:
            raise ValueError("the template was dropped, and is read of the API server first")
        return _unpacked(self.packed)

    def once(self, fact: Callable[[PodTemplate], T]) -> T:
        """What a pure function finds in it: asked once, and kept with the template. What it finds must be small."""
        if fact not in self._facts:
            self._facts[fact] = fact(self.read())
        found: T = self._facts[fact]
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PackedTemplate):
            return False
        return self.packed == other.packed and self.weight_bytes == other.weight_bytes

    def __hash__(self) -> int:
        return hash(self.packed)

    def __repr__(self) -> str:
        return f"PackedTemplate({len(self.packed)} bytes)"

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """It is read and written as a PodTemplate."""

        def packed(value: Any, read: Callable[[Any], PodTemplate]) -> PackedTemplate:
            return value if isinstance(value, PackedTemplate) else cls.of(read(value))

        def written(template: PackedTemplate) -> dict[str, Any]:
            return _unpacked.__wrapped__(template.packed).wire()  # of the writer's own: he may change it

        return core_schema.no_info_wrap_validator_function(
            packed,
            handler.generate_schema(PodTemplate),
            serialization=core_schema.plain_serializer_function_ser_schema(written),
        )


def _written(value: dict[str, Any]) -> bytes:
    """As JSON, with the members of its objects in order."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (OverflowError, UnicodeEncodeError):  # what no API server sends, a file may have: 2**64, half a character
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


# Who makes the Pods of a gang reads its template some ten times, and that of its parameter servers.
@lru_cache(maxsize=2)
def _unpacked(packed: bytes) -> PodTemplate:
    text = zlib.decompress(packed)
    try:
        metadata, spec = msgspec.json.decode(text)
    except msgspec.DecodeError:
        metadata, spec = json.loads(text)
    return PodTemplate.model_construct(metadata=TemplateMetadata.model_construct(**metadata), spec=spec)


class ParameterServers(Wire):
    """CPU tasks of the parameter-server strategy (TensorFlow, Custom)."""

    replicas: Annotated[int, Field(ge=1, le=1024)]
    """Number of these tasks: parameter servers; of TensorFlow's the first is the chief, so that 2 are the least."""
    template: PackedTemplate
    """Pod template of each parameter server, in the same form as the job's template."""


class Elastic(Wire):
    """Bounds of an elastic job."""

    min_gpus: Annotated[int, Field(alias="minGPUs", ge=1, le=MAX_GPUS)]
    """World size the job may start with, and shrink to, rather than wait; it grows back to gpus where there is room. It
    keeps whole groups: tensor x context x pipeline, expert and topology.gpusPerNode divide it as they divide gpus. Each
    change of the size is one restart."""


class RestartRule(Wire):
    """What to do when a trainer ends with one of these exit codes."""

    exit_codes: Annotated[list[Annotated[int, Field(ge=1, le=255)]], Field(min_length=1, max_length=64)]
    """Exit codes that this rule matches."""
    action: RestartAction
    """Fail: the job fails. Restart: it starts again, which is charged against the limit. RestartFree: it starts again,
    and nothing is charged."""


class Restart(Wire):
    """When a failed job starts again. Only what the job does itself is charged: never a drain, a preemption, or a fault
    of a node, a GPU, a NIC or a link."""

    limit: Annotated[int, Field(ge=0, le=MAX_RESTARTS)] = 0
    """Charged restarts within the window before the job fails. Default 0: the first failure of its own ends it."""
    window: Duration = "24h"
    """How long a charged restart counts, from 1m to 8760h. Default 24h."""
    stall_deadline: Duration | None = None
    """Time without progress after which the job counts as hung: without a collective by NCCL while a rank is behind the
    others, or without a touch of the file that CLOSEKNIT_PROGRESS_FILE names in the trainer, once it has touched it.
    From 10s to 8760h. Default 8m by NCCL, and never by the file."""
    on_hang: OnHang = OnHang.WARN
    """Warn or Restart: what a hang does to the job. Default Warn."""
    rules: Annotated[list[RestartRule], Field(max_length=16)] = []
    """Rules by exit code: the first that matches decides, and without one the restart is charged. They judge only ends
    that the job itself has caused."""

    def action_after(self, exit_code: int | None) -> RestartAction | None:
        """What the first rule that has this exit code says; None where none has it."""
        return next((rule.action for rule in self.rules if exit_code in rule.exit_codes), None)

    def obstacle(self) -> tuple[str, str] | None:
        """The first of its fields that contradicts another or cannot be met, and why; None for sound ones."""
        if not is_window(self.window):
            return "window", WINDOW_MESSAGE
        if self.stall_deadline is not None and not _is_from(LEAST_STALL, self.stall_deadline):
            return "stallDeadline", STALL_MESSAGE
        if any(self.action_after(code) is not rule.action for rule in self.rules for code in rule.exit_codes):
            return "rules", RULES_DISAGREE_MESSAGE
        if self.limit == 0 and any(rule.action is RestartAction.RESTART for rule in self.rules):
            return "limit", NO_LIMIT_MESSAGE
        if self.limit == 0 and self.on_hang is OnHang.RESTART:
            return "limit", NO_LIMIT_FOR_HANGS_MESSAGE
        return None


# Everything else of a spec is immutable once its job was booked, fields of later versions included.
MUTABLE: Final = frozenset({"suspend", "priorityClassName", "queue", "elastic", "ttlSecondsAfterFinished"})


class TrainingJobSpec(Wire):
    """What the user asks for."""

    gpus: Annotated[int, Field(ge=1, le=MAX_GPUS)]
    """World size: number of GPUs, one rank each, 1 to 65536."""
    framework: Framework = Framework.PYTORCH
    """Launch contract: PyTorch, DeepSpeed, Horovod, MPI, TensorFlow, JAX or Custom. Default PyTorch."""
    parallelism: Parallelism = Parallelism()
    """Degrees of model parallelism; tensor x context x pipeline divides gpus."""
    topology: TopologyRequest = TopologyRequest()
    """How close the GPUs must be."""
    gpu: GpuRequest = GpuRequest()
    """Which GPUs are accepted and how they are bound."""
    network: NetworkRequest = NetworkRequest()
    """What is asked of the network between nodes."""
    storage: StorageRequest = StorageRequest()
    """What is asked of storage."""
    parameter_servers: ParameterServers | None = None
    """CPU tasks of the parameter-server strategy."""
    queue: Label | None = None
    """Queue of the job: all jobs stand in one, but nodes may be spares for the jobs of this queue."""
    priority_class_name: Name | None = None
    """PriorityClass of the job and of its Pods."""
    expected_duration: Duration | None = None
    """How long the job is expected to run, restarts from checkpoints not counted. It lets a short job pass a waiting
    large one that it does not delay, and tells those who wait when its GPUs come free. It ends nothing."""
    elastic: Elastic | None = None
    """Bounds of an elastic job."""
    spares: Annotated[int, Field(ge=0, le=MAX_SPARES)] = 0
    """Nodes like its own that are held near, without Pods, to take the place of lost ones, and are lent meanwhile to
    jobs that it may end. With fewer free ones the job starts all the same, and the condition Placed says so. Default 0.
    """
    restart: Restart | None = None
    """When a failed job starts again. Default: its first failure of its own ends it."""
    defragment: Defragment = Defragment.NEVER
    """Never, OnRestart or Planned: when the job may be moved to gather free GPUs. OnRestart: where it starts again in
    new Pods anyway, and a node or a domain of a level is free as a whole by that. Planned: then, and while it runs
    where a gang that waits fits by that: it starts again elsewhere. Default Never."""
    preflight: Preflight = Preflight.NEVER
    """Never, Warn or Enforce: a short all-reduce on the chosen GPUs before the trainer starts. Default Never."""
    suspend: bool = False
    """Ends the current attempt and holds no GPUs while true. Default false."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Seconds after its end when a finished job is deleted, with its Pods and their logs. Default: never."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Seconds after which the job fails, counted from status.startTime: since it first got GPUs, restarts and waits
    between them included. A suspended job has no deadline, and a resumed one begins to count again. Default: none."""
    template: PackedTemplate
    """The Pods' template: metadata (labels and annotations) and spec, which is required, any PodSpec, and judged by the
    API server when it sees the Pods. The container named trainer, or the only one, gets the GPUs."""

    @property
    def least_size(self) -> int:
        """The least world size that keeps all groups whole. Every size that does is a multiple of it."""
        axes = self.parallelism
        stages = axes.tensor * axes.pipeline
        return lcm(stages * axes.context, stages * axes.expert, self.topology.gpus_per_node or 1)

    @model_validator(mode="after")
    def _degrees_divide(self) -> "TrainingJobSpec":
        """The CEL rules of the CRD, said again for files that no API server has seen."""
        degrees = self.parallelism
        if self.gpus % (degrees.tensor * degrees.context * degrees.pipeline):
            raise FieldError("parallelism", "tensor x context x pipeline must divide gpus")
        if (self.gpus // (degrees.tensor * degrees.pipeline)) % degrees.expert:
            raise FieldError("parallelism.expert", "expert must divide context x data: gpus / (tensor x pipeline)")
        if self.elastic and self.elastic.min_gpus > self.gpus:
            raise FieldError("elastic.minGPUs", "elastic.minGPUs must not exceed gpus")
        if self.elastic and self.elastic.min_gpus % self.least_size:
            raise FieldError("elastic.minGPUs", BREAKS_GROUPS_MESSAGE)
        if self.topology.gpus_per_node and self.gpus % self.topology.gpus_per_node:
            raise FieldError("topology.gpusPerNode", "topology.gpusPerNode must divide gpus")
        egress = self.network.egress_bandwidth
        if egress and not quantity(LEAST_EGRESS) <= quantity(egress) <= quantity(MOST_EGRESS):
            raise FieldError("network.egressBandwidth", EGRESS_MESSAGE)
        if self.gpu.mig and self.gpus != 1:
            raise FieldError("gpu.mig", "gpu.mig needs gpus: 1")
        if self.restart is not None and (obstacle := self.restart.obstacle()) is not None:
            field, message = obstacle
            raise FieldError(f"restart.{field}", message)
        return self
