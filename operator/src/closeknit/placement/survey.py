"""The nodes that one job may use, and what of each: the first look at a cluster, before any search."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob import BindingPolicy
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node import NodeView, Taint
from closeknit.machine.graph import Machine
from closeknit.placement.request import Request, Toleration
from closeknit.placement.sets import Ask, Sets, mask_of, positions_of, sets_of


class Seat(NamedTuple):
    """How a share of one size is bound on a node."""

    binding: Binding
    only: int | None
    """The one set that it can be; None where any set of the pool can be bound."""


class Profile(NamedTuple):
    """Everything of a node that the choice of its GPUs depends on; a cluster's many nodes have few of them."""

    sets: Sets
    kind: tuple[str, ...]
    """Machines of equal kind may be mixed: the products of all GPUs, or the topology class where one is unknown."""
    free: int
    """Mask of GPUs that nobody holds."""
    pool: int
    """Mask of those that the job may take."""
    dra: bool
    whole: bool
    """Whether a device plugin can give all GPUs of the node at once."""
    part: int
    """How many GPUs a device plugin can give out of `free`, where it is known what it has given; else 0."""
    transports: tuple[Transport, ...]
    """RDMA transports that a Pod can get here."""
    beyond: bool = False
    """Whether the device plugin could also hand out GPUs that are not free: it does not know that they are broken."""

    def seat(self, ask: Ask, policy: BindingPolicy) -> Seat | None:
        """How a share is bound; None where it cannot be, whatever is free."""
        if ask.gpus > self.pool.bit_count():
            return None
        if self.dra:
            return Seat(Binding.DRA, None) if policy in (BindingPolicy.AUTO, BindingPolicy.DRA) else None
        every = self.sets.every
        if (
            policy in (BindingPolicy.AUTO, BindingPolicy.WHOLE_NODE)
            and self.whole
            and self.pool == every
            and ask.gpus == every.bit_count()
        ):
            return Seat(Binding.WHOLE_NODE, every)
        if policy not in (BindingPolicy.AUTO, BindingPolicy.BEST_EFFORT) or self.pool != self.free:
            return None
        if ask.gpus > self.part:
            return None
        # The plugin picks. Without the job's word that is good only where it cannot pick badly.
        if policy is BindingPolicy.AUTO and (self.beyond or not self.sets.is_indifferent(self.free, ask)):
            return None
        return Seat(Binding.BEST_EFFORT, mask_of(positions_of(self.free)[: ask.gpus]))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One node that the job may use."""

    view: NodeView
    machine: Machine
    domains: tuple[str, ...]
    """Domain at each level, host last; of a node without a domain at a level, one of its own."""
    profile: Profile


def survey(cluster: Cluster, request: Request) -> tuple[Candidate, ...]:
    """The nodes that the job may use now, by name, with what is free."""
    return tuple(
        Candidate(view, machine, _domains(view), _profile(view, machine, request))
        for view, machine in _nodes(cluster, request)
        if view.exclusion is None
    )


def survey_empty(cluster: Cluster, request: Request) -> tuple[Candidate, ...]:
    """The nodes that the job may use in an empty, healthy copy of the cluster, each GPU of them at choice."""
    return tuple(
        Candidate(view, machine, _domains(view), _empty_profile(view, machine, request))
        for view, machine in _nodes(cluster, request)
    )


def admits(view: NodeView, request: Request) -> bool:
    """Whether the job's Pods may run on a node: its node selector and tolerations."""
    return selected(view, request) and not untolerated(view, request)


def selected(view: NodeView, request: Request) -> bool:
    """Whether the node has the labels that the job's node selector names."""
    return all(view.labels.get(key) == value for key, value in request.node_selector)


def untolerated(view: NodeView, request: Request) -> tuple[Taint, ...]:
    """Taints of the node that the job does not tolerate."""
    return tuple(taint for taint in view.taints if not any(_tolerates(entry, taint) for entry in request.tolerations))


def matching(machine: Machine, request: Request) -> int:
    """Mask of the GPUs that are of a product and a size that the job takes."""
    if not request.products and request.min_memory_bytes is None:
        return (1 << len(machine.gpus)) - 1
    return mask_of(
        tuple(
            position
            for position, gpu in enumerate(machine.gpus)
            if (not request.products or gpu.product in request.products)
            and (request.min_memory_bytes is None or (gpu.memory_bytes or 0) >= request.min_memory_bytes)
        )
    )


def _nodes(cluster: Cluster, request: Request) -> Iterator[tuple[NodeView, Machine]]:
    for name in sorted(cluster.nodes):
        view = cluster.nodes[name]
        if view.machine is not None and view.machine.gpus and admits(view, request):
            yield view, view.machine


def _domains(view: NodeView) -> tuple[str, ...]:
    """Unlabelled nodes may be anywhere, so that each counts as a domain of its own."""
    return tuple(domain if domain is not None else f"?/{view.name}" for domain in view.domains)


def _profile(view: NodeView, machine: Machine, request: Request) -> Profile:
    sets = sets_of(machine)
    free = sets.mask_of_indexes(view.free)
    plugin = view.plugin if view.plugin and not view.plugin.shared else None
    count = len(machine.gpus)
    return Profile(
        sets=sets,
        kind=_kind(machine),
        free=free,
        pool=free & matching(machine, request),
        dra=view.dra,
        whole=plugin is not None
        and plugin.requested == 0
        and plugin.allocatable == plugin.capacity == count
        and free == sets.every,
        part=min(plugin.free, free.bit_count()) if plugin and plugin.holders_known else 0,
        transports=sets.transports if view.rdma and view.rdma.free >= 1 else (),
        beyond=plugin is not None and plugin.free > free.bit_count(),
    )


def _empty_profile(view: NodeView, machine: Machine, request: Request) -> Profile:
    sets = sets_of(machine)
    whole = mask_of(tuple(position for position, gpu in enumerate(machine.gpus) if not gpu.mig_enabled))
    return Profile(
        sets=sets,
        kind=_kind(machine),
        free=whole,
        pool=whole & matching(machine, request),
        dra=True,
        whole=False,
        part=0,
        transports=sets.transports if view.rdma else (),
    )


def _kind(machine: Machine) -> tuple[str, ...]:
    products = tuple(sorted({gpu.product or "" for gpu in machine.gpus}))
    return products if all(products) else (machine.topology_class,)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """The rule of Kubernetes: an empty key with Exists tolerates everything, an empty effect every effect."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value
