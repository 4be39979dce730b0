"""What a job asks of placement, out of its spec."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm
from typing import Any, NamedTuple

from closeknit.api.affinity import NodeAffinity, required_node_affinity
from closeknit.api.names import MNNVL, JobKey, NodeLabel
from closeknit.api.text.opaque import MalformedError
from closeknit.api.text.quantity import quantity
from closeknit.api.toleration import architecture_tolerations
from closeknit.api.trainingjob import BindingPolicy, NvlinkPolicy, Parallelism, PodTemplate, RdmaPolicy, TrainingJobSpec
from closeknit.cluster.booking.parameter_servers import needs_on_a_node
from closeknit.cluster.objects.nic_exposure import asked, claims_itself
from closeknit.cluster.objects.pod_requests import Needs


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of the job's Pods; an empty key tolerates every taint, an empty effect every effect."""

    key: str
    operator: str  # Exists | Equal
    value: str
    effect: str


class AxisTraffic(NamedTuple):
    """What a rank sends on each axis between hosts, relative to the others."""

    data: float
    pipeline: float
    expert: float


NOBODY = JobKey("", "")
"""Whose a request is that many jobs share."""

# One gradient is as large as the model's share of a rank, activations at a stage's end are some tenth of it, and tokens
# go to experts and back in every layer.
DENSE_TRAFFIC = AxisTraffic(1.0, 0.1, 1.0)
EXPERT_TRAFFIC = AxisTraffic(0.3, 0.1, 1.0)


@dataclass(frozen=True, slots=True)
class Request:
    """One gang: gpus ranks, one GPU each."""

    job: JobKey
    gpus: int
    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    expert: int = 1
    traffic: AxisTraffic = DENSE_TRAFFIC
    nvlink: NvlinkPolicy = NvlinkPolicy.PREFERRED
    mixes_kinds: bool = True
    """Whether it takes machines of several kinds where nothing else exists."""
    required_level: str | None = None
    preferred_level: str | None = None
    patient_level: str | None = None
    """The level that is waited for as if it were required, inside the required one: the preferred one, or where that is
    too small for the job the next one outwards that is not."""
    gpus_per_node: int | None = None
    min_bus_bandwidth_gb_s: float | None = None
    products: tuple[str, ...] = ()
    min_memory_bytes: int | None = None
    binding: BindingPolicy = BindingPolicy.AUTO
    allow_shared: bool = False
    """Whether it takes GPUs that others may use, too."""
    mig: str | None = None
    """The profile of which its one rank takes a MIG device; None for whole GPUs."""
    rdma: RdmaPolicy = RdmaPolicy.PREFERRED
    tolerations: tuple[Toleration, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: NodeAffinity | None = None
    """The required node affinity; the preferred one chooses among nodes, of which placement leaves one for each Pod."""
    volumes: frozenset[NodeAffinity] = frozenset()
    """What the volumes of its Pods require of a node: all of it."""
    avoided: frozenset[str] = frozenset()
    """Nodes that this job leaves alone for a while, by name."""
    spare_queues: frozenset[str] = frozenset()
    """Queues whose spare nodes it takes, too: those of its own when it has lost a node, or such as are lent to it."""
    traffic_class: str | None = None
    """Name of a traffic class that the site must have declared."""
    leaves_channels: bool = True
    """Whether closeknit may give its Pods IMEX channels: the user has no word of his own on NVLink between nodes."""
    needs: Needs = ()
    """What its Pods on one node, a worker and parameter servers, need there besides GPUs."""
    claims_itself: bool = False
    """Whether its template claims devices itself, which NICs may be among."""
    asked: frozenset[str] = frozenset()
    """Resources that its template names."""

    @property
    def level(self) -> str | None:
        """The level inside one domain of which it must lie now."""
        return self.patient_level if self.patient_level is not None else self.required_level

    @property
    def takes_free_gpus(self) -> bool:
        """Whether it takes whole free GPUs alone: no MIG device, and no GPU that others have, too."""
        return self.mig is None and not self.allow_shared

    @property
    def gives_way(self) -> bool:
        """Whether it waits for more than it prefers: too large for that level, it leaves its domains to others."""
        return self.preferred_level is not None and self.patient_level not in (None, self.preferred_level)

    @property
    def selects(self) -> bool:
        """Whether it takes nodes by their labels or names."""
        return self.is_selective or bool(self.volumes)

    @property
    def is_selective(self) -> bool:
        """Whether its template does."""
        return bool(self.node_selector) or self.affinity is not None

    @property
    def requirements(self) -> int:
        """How much is asked of every node's labels and name."""
        affinities = self.volumes if self.affinity is None else (self.affinity, *self.volumes)
        terms = (term for affinity in affinities for term in affinity.terms)
        return len(self.node_selector) + sum(len(term.labels) + len(term.names) for term in terms)

    @property
    def node_criteria(self) -> "NodeCriteria":
        """What tells which nodes it may use, and what they have for it."""
        return NodeCriteria(
            self.tolerations,
            self.products,
            self.min_memory_bytes,
            self.allow_shared,
            self.needs,
            self.claims_itself,
            self.asked,
            self.spare_queues,
        )

    @property
    def group(self) -> int:
        """Ranks of one tensor x context group, which talk the most; 1 where the job has none."""
        return self.tensor * self.context

    @property
    def expert_block(self) -> int:
        """Ranks that follow each other and make up whole groups and whole expert groups."""
        return lcm(self.group, self.tensor * self.expert)


class NodeCriteria(NamedTuple):
    """What of a request tells which nodes it may use, and what they have for it. Requests of equal criteria see the
    same nodes (candidate_tree.py); each field means what it does of a Request."""

    tolerations: tuple[Toleration, ...]
    products: tuple[str, ...]
    min_memory_bytes: int | None
    allow_shared: bool
    needs: Needs
    claims_itself: bool
    asked: frozenset[str]
    spare_queues: frozenset[str]

    @property
    def alone(self) -> Request:
        """A request that has nothing else, for a reader that must not see more."""
        return Request(NOBODY, 1, **self._asdict())


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a Pod template says that a Request has."""

    tolerations: tuple[Toleration, ...]
    selector: tuple[tuple[str, str], ...]
    affinity: NodeAffinity | None
    leaves_channels: bool
    claims_itself: bool
    resources: frozenset[str]


def request(job: JobKey, spec: TrainingJobSpec, volumes: frozenset[NodeAffinity] = frozenset()) -> Request:
    """The request of a job's spec, whose volumes require this of its nodes. What of the opaque template is malformed is
    ignored here; launch refuses it."""
    template = spec.template.once(_asked_by)
    return Request(
        job=job,
        gpus=spec.gpus,
        tensor=spec.parallelism.tensor,
        context=spec.parallelism.context,
        pipeline=spec.parallelism.pipeline,
        expert=spec.parallelism.expert,
        traffic=_traffic(spec.parallelism),
        nvlink=spec.topology.nvlink,
        mixes_kinds=spec.topology.nvlink is not NvlinkPolicy.REQUIRED,
        required_level=spec.topology.fabric.required,
        preferred_level=spec.topology.fabric.preferred,
        gpus_per_node=spec.topology.gpus_per_node,
        min_bus_bandwidth_gb_s=spec.topology.min_bus_bandwidth_gb_s,
        products=tuple(sorted(spec.gpu.products)),
        min_memory_bytes=int(quantity(spec.gpu.min_memory)) if spec.gpu.min_memory else None,
        binding=spec.gpu.binding,
        allow_shared=spec.gpu.allow_shared,
        mig=spec.gpu.mig,
        rdma=spec.network.rdma,
        traffic_class=spec.network.traffic_class,
        tolerations=template.tolerations,
        node_selector=_selector(spec, template.selector),
        leaves_channels=template.leaves_channels,
        needs=needs_on_a_node(spec),
        claims_itself=template.claims_itself,
        asked=template.resources,
        affinity=template.affinity,
        volumes=volumes,
    )


def _asked_by(template: PodTemplate) -> _Asked:
    spec = template.spec
    selector, tolerations = spec.get("nodeSelector"), spec.get("tolerations")
    return _Asked(
        tolerations=tuple(
            toleration(entry)
            for entry in (*(tolerations if isinstance(tolerations, list) else ()), *architecture_tolerations(spec))
            # What is tolerated for a while alone lets a Pod end there, and lets no gang begin there: it would be
            # evicted, placed on the same node, and evicted again.
            if isinstance(entry, dict) and entry.get("tolerationSeconds") is None
        ),
        selector=tuple(sorted((str(key), "" if value is None else str(value)) for key, value in selector.items()))
        if isinstance(selector, dict)
        else (),
        affinity=_affinity(spec),
        leaves_channels=not _sets(spec, MNNVL),
        claims_itself=claims_itself(spec),
        resources=frozenset(asked(spec)),
    )


def _selector(spec: TrainingJobSpec, selector: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The template's, and what the job asks of its nodes by other fields: their agents say it in labels."""
    if not spec.storage.gpu_direct:
        return selector
    return tuple(sorted((dict(selector) | {NodeLabel.GPUDIRECT_STORAGE.value: "true"}).items()))


def _sets(template: Mapping[str, Any], name: str) -> bool:
    """Whether some container of a template sets a variable, which may be the trainer."""
    containers = template.get("containers")
    entries = [
        entry
        for container in (containers if isinstance(containers, list) else ())
        if isinstance(container, dict) and isinstance(env := container.get("env"), list)
        for entry in env
    ]
    return any(isinstance(entry, dict) and entry.get("name") == name for entry in entries)


def _traffic(parallelism: Parallelism) -> AxisTraffic:
    usual = EXPERT_TRAFFIC if parallelism.expert > 1 else DENSE_TRAFFIC
    said = parallelism.traffic
    return AxisTraffic(
        *(
            (own if own is not None else each)
            for own, each in zip((said.data, said.pipeline, said.expert) if said else (None,) * 3, usual, strict=True)
        )
    )


def _affinity(template: dict[str, Any]) -> NodeAffinity | None:
    try:
        return required_node_affinity(template, "spec")
    except MalformedError:
        return None


def toleration(entry: Mapping[str, object]) -> Toleration:
    """A toleration as a template has it. What of it is malformed reads as absent."""

    def word(key: str) -> str:
        return str(entry.get(key) or "")

    return Toleration(word("key"), word("operator") or "Equal", word("value"), word("effect"))
