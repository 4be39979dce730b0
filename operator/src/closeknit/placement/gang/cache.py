"""What placement keeps from one decision to the next: an explicit value, bounded, that never changes an answer.

Everything in it can be thrown away at any moment. One decision at a time uses it.
"""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from operator import attrgetter
from typing import NamedTuple
from weakref import ref

from closeknit.api.affinity import NodeAffinity
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.forest.domain import Domain
from closeknit.cluster.forest.forest import Forest
from closeknit.cluster.forest.group import MachineKind
from closeknit.machine.graph import Machine
from closeknit.placement.allreduce.paths import Paths
from closeknit.placement.allreduce.rings import SET_STEPS, STEPS, Rings, rings
from closeknit.placement.candidates.binding import Seat
from closeknit.placement.candidates.candidate_tree import CandidateTree
from closeknit.placement.candidates.held_gpus import HeldGpus
from closeknit.placement.candidates.node_filter import selected
from closeknit.placement.candidates.offer import Offer, Terms
from closeknit.placement.candidates.usable_areas import Area, Areas
from closeknit.placement.gang.offer_values import OfferValues
from closeknit.placement.gpusets.best_first import ASKED_GPUS, ASKED_NODES, FEW_STEPS, FEW_TIMES, BestFirstSets
from closeknit.placement.gpusets.exhaustive import ExhaustiveSets
from closeknit.placement.gpusets.gpu_sets import GpuSets
from closeknit.placement.gpusets.search_cost import MACHINE_STEPS, SearchCost, listing, too_dear
from closeknit.placement.gpusets.set_facts import SetFacts
from closeknit.placement.gpusets.set_value import SetChoice
from closeknit.placement.gpusets.unsearched import UnsearchedSets
from closeknit.placement.spread.cheapest import Filling
from closeknit.placement.spread.cost import PackedCost
from closeknit.placement.spread.domain_counts import Alike
from closeknit.placement.values.bounded import Bounded
from closeknit.placement.values.request import NOBODY, Request, request

KINDS = 1024  # of machines
SETS = 1 << 16  # of GPUs whose rings are known
OFFERS = 1 << 16
STAGES = 512  # what one size of share is worth to one kind of job, on every offer: some dozens for one decision
FILLINGS, FEW_FILLINGS = 512, 64  # searches over the tree; some dozens for one decision
# That all searches know together, at some 300 bytes each: 200 searches on 40,000 nodes; and that all grounds have.
AREAS = 1 << 19
SELECTIONS = 64  # of labels
# Kinds of requests by what they select, tolerate, filter and need; hardly two jobs ask for the same CPU and memory.
GROUNDS, FEW_GROUNDS = 1024, 64
# Views of nodes whose holders are counted, for all kinds of requests together, each of a version of its own: 1.5 KiB
# each, 100 MiB in all. A kind that is counted again from the start costs 17 ms on 5,000 nodes.
VIEWS, FEW_HELD = 1 << 16, 4
ANSWERS = 4096  # on one version of a cluster
REQUESTS = 8192  # of jobs, with the present state of their volumes; 20 us each to make again
VERSIONS = 4  # of a cluster: one decision walks through its own, and asks again on the last one


class OfferShare(NamedTuple):
    """The set of GPUs to take of an offer."""

    choice: SetChoice
    seat: Seat
    cost: PackedCost


class Dear(NamedTuple):
    """What of a cluster is not searched whole."""

    kinds: frozenset[str]
    """Topology classes."""
    asked: frozenset[str]
    """Those of them that are searched where a job asks."""
    nodes: int
    """How many nodes have these."""


class Same:
    """Stands for one object in a key: equal to itself alone."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class Selection(NamedTuple):
    """The trees of the nodes that a request selects and does not avoid, and what they were made of."""

    labels: object
    names: frozenset[str] | None
    """Of the nodes that it selects, avoided ones included; None where it selects all."""
    now: Domain
    empty: Domain
    selected_now: Domain
    selected_empty: Domain

    def is_of(self, forest: Forest) -> bool:
        """Whether it was made of this forest."""
        return self.labels is forest.labels and self.now is forest.now and self.empty is forest.empty


class Tables:
    """Kept per kind of machine, per offer, and per kind of request."""

    def __init__(self) -> None:
        self._sets: Bounded[tuple[str, int | None], GpuSets] = Bounded(KINDS)
        self._efforts: Bounded[str, SearchCost] = Bounded(KINDS)
        self._dear: tuple[Domain, Dear] | None = None
        """Of the version of the empty cluster that was seen last."""
        self._rings: Bounded[tuple[bytes, int, int], Rings] = Bounded(SETS)
        """By the digest of their paths, what the searches might take, and how often each might extend a ring."""
        self._offers: Bounded[Terms, Offer] = Bounded(OFFERS)
        self.values: Bounded[Hashable, OfferValues[float]] = Bounded(STAGES)
        """(offers, what of a share, floor) -> the best that an offer has."""
        self.choices: Bounded[Hashable, OfferValues[OfferShare]] = Bounded(STAGES)
        """(offers, share, floor) -> the set to take of an offer, how it is bound, and what that costs."""
        self.alike = Alike()
        self._fillings: Bounded[Hashable, Filling] = Bounded(FILLINGS)
        self._translations: Bounded[Hashable, CandidateTree] = Bounded(FEW_GROUNDS)
        self.counted_nodes = 0
        """How many were looked at for the holders of their GPUs in all: those of one version once for each kind."""
        self._held: Bounded[Hashable, HeldGpus] = Bounded(FEW_HELD)
        """Of the kinds of requests whose refusals were last put in words: each keeps the views of the nodes then."""
        self._selections: Bounded[Hashable, Selection] = Bounded(SELECTIONS)
        self._requests: Bounded[tuple[int, frozenset[NodeAffinity]], tuple[ref[TrainingJobSpec], Request]]
        self._requests = Bounded(REQUESTS)
        """By the identity of a spec, which this keeps not: a template is large."""
        self._ideals: Bounded[Same, Bounded[Hashable, float | None]] = Bounded(VERSIONS)
        self._fits: Bounded[Same, Bounded[Hashable, bool]] = Bounded(VERSIONS)
        """On those versions as every kind of request sees them."""

    def request(self, spec: TrainingJobSpec, volumes: frozenset[NodeAffinity]) -> Request:
        """The request of a job's spec, as many jobs share it."""
        known = self._requests.get((id(spec), volumes))
        if known is None or known[0]() is not spec:
            known = self._requests[id(spec), volumes] = ref(spec), request(NOBODY, spec, volumes)
        return known[1]

    def ideals(self, empty: Domain) -> Bounded[Hashable, float | None]:
        """On one version of the empty cluster: a request, labels that it selects by, and the cluster's joints -> its
        best bandwidth."""
        return self._ideals.kept(Same(empty), lambda: Bounded(ANSWERS))

    def fits(self, root: Area) -> Bounded[Hashable, bool]:
        """On what requests of one kind may use: a request and the cluster's joints -> whether it fits."""
        return self._fits.kept(Same(root), lambda: Bounded(ANSWERS))

    def filling(self, key: Hashable, make: Callable[[], Filling], areas: int) -> Filling:
        """The search that has seen the last versions of a tree of so many areas, by (offers, share, floor, way of
        counting)."""
        self._fillings.limit(max(FEW_FILLINGS, min(FILLINGS, AREAS // areas)))
        return self._fillings.kept(key, make)

    def learn(self, machine: Machine) -> None:
        """Works out what jobs ask of a machine, so that none of them waits for it; of one too dear nothing."""
        if self._dear and machine.topology_class in self._dear[1].kinds:
            return
        effort = self.effort_of(machine)
        effort.searched(MACHINE_STEPS)
        if effort.is_all:
            self.sets_of(machine).learn()

    def learn_asked(self, empty: Domain) -> bool:
        """Works out a part of what jobs ask of the machines of an empty cluster that are searched where a job asks, so
        that few of them wait for it. Whether there is more."""
        dear = self.dear_in(empty)
        if not dear.asked:  # as a rule
            return False
        kinds = {group.kind for group in empty.counts if group.kind and group.kind.topology_class in dear.asked}
        of_kinds = [self._sets_of_kind(dear, kind) for kind in sorted(kinds, key=attrgetter("topology_class"))]
        return any(sets.learn() for sets in of_kinds)  # of the others it is not asked

    def sets_of(self, machine: Machine) -> GpuSets:
        """The sets of a machine, shared by all machines of its topology class."""
        return self._sets.kept((machine.topology_class, None), partial(self._new_sets, machine, None))

    def _new_sets(self, machine: Machine, among: int | None) -> GpuSets:
        """`among`: None where all is searched; else of how many nodes that are searched where a job asks, or 0."""
        if among is None:
            effort = self.effort_of(machine)
            return effort.sets if effort.is_all else ExhaustiveSets(SetFacts(machine, self._rings_of))
        facts = SetFacts(machine, self._few_rings_of)
        return BestFirstSets(facts, among) if among else UnsearchedSets(facts)

    def ground(self, cluster: Cluster, request: Request, *, empty: bool = False) -> Areas:
        """What there is for a request in a cluster, or in an empty, healthy copy of it."""
        forest = cluster.forest
        now, emptied = forest.now, forest.empty
        if request.selects or request.avoided:
            now, emptied = self._selection(cluster, request)
        criteria, dear = request.node_criteria, self.dear_in(forest.empty)
        key = (empty, _selected(request), criteria, dear)
        translation = self._translations.use(key)
        if translation is None or translation.is_full:
            held = partial(self._held.kept, key, partial(HeldGpus, self._note))
            translation = CandidateTree(criteria, partial(self._sets_of_kind, dear), self._offer_of, held)
        ground = translation.ground(emptied if empty else now, len(cluster.levels))
        # The names of some sixteen nodes weigh what an area does.
        few = max(FEW_GROUNDS, min(GROUNDS, AREAS // (ground.root.areas + len(cluster.nodes) // 16)))
        self._translations.limit(few)
        self._translations[key] = translation
        self._fits.limit(VERSIONS * few)
        self._held.limit(max(FEW_HELD, VIEWS // max(1, len(cluster.nodes))))
        return ground

    def knows_selection(self, cluster: Cluster, request: Request) -> bool:
        """Whether the request takes all nodes, or the tree of those that it selects is at hand."""
        if not request.selects:
            return True
        forest, found = cluster.forest, self._selections.get(_selected(request))
        return found is not None and found.is_of(forest)

    def _selection(self, cluster: Cluster, request: Request) -> tuple[Domain, Domain]:
        """The trees of the nodes that a request selects and does not avoid, now and empty."""
        forest, key = cluster.forest, _selected(request)
        found = self._selections.use(key)
        if found is not None and found.is_of(forest):
            return found.selected_now, found.selected_empty
        is_labelled_alike = found is not None and found.labels is forest.labels
        names = found.names if found is not None and is_labelled_alike else _names(cluster, request)
        only = forest if names is None else forest.only(names)
        left = [cluster.nodes[name] for name in request.avoided if name in (cluster.nodes if names is None else names)]
        only = only.after((view, None) for view in left)
        is_empty_alike = found is not None and is_labelled_alike and found.empty is forest.empty
        empty = found.selected_empty if found is not None and is_empty_alike else only.empty
        self._selections[key] = Selection(forest.labels, names, forest.now, forest.empty, only.now, empty)
        return only.now, empty

    def dear_in(self, empty: Domain) -> Dear:
        """The topology classes of a cluster that are not searched whole."""
        if self._dear is None or self._dear[0] is not empty:
            machines: dict[str, Machine] = {}
            nodes: dict[str, int] = {}
            for group, number in empty.counts.items():
                if group.kind is not None:
                    name = group.kind.topology_class
                    machines[name] = group.kind.machine
                    nodes[name] = nodes.get(name, 0) + number
            kinds = too_dear(nodes, lambda name: self.effort_of(machines[name]))
            small = {name: nodes[name] for name in kinds if len(machines[name].gpus) <= ASKED_GPUS}
            self._dear = (empty, Dear(kinds, *_asked(small)))
        return self._dear[1]

    def effort_of(self, machine: Machine) -> SearchCost:
        """The search of a machine's rings, as far as it has come."""
        name = machine.topology_class
        return self._efforts.kept(name, lambda: SearchCost(machine, listing(machine), self._rings_of))

    def sets_in(self, cluster: Cluster, kind: MachineKind) -> GpuSets:
        """The sets of a machine of this kind, searched as far as those of the cluster's are."""
        return self._sets_of_kind(self.dear_in(cluster.forest.empty), kind)

    def _sets_of_kind(self, dear: Dear, kind: MachineKind) -> GpuSets:
        name = kind.topology_class
        if name not in dear.kinds:
            return self.sets_of(kind.machine)
        among = dear.nodes if name in dear.asked else 0
        return self._sets.kept((name, among), partial(self._new_sets, kind.machine, among))

    def _note(self, counted: int) -> None:
        self.counted_nodes += counted

    def _offer_of(self, terms: Terms) -> Offer:
        return self._offers.kept(terms, lambda: Offer(terms, max(0, terms.pool.bit_count() - terms.unnamed)))

    def _rings_of(self, paths: Paths) -> Rings:
        return self._rings_within(paths, SET_STEPS, STEPS)

    def _few_rings_of(self, paths: Paths) -> Rings:
        return self._rings_within(paths, FEW_STEPS, FEW_TIMES)

    def _rings_within(self, paths: Paths, most_steps: int, times: int) -> Rings:
        key = paths.digest(), most_steps, times
        return self._rings.kept(key, lambda: rings(paths, most_steps, times))


def _names(cluster: Cluster, request: Request) -> frozenset[str] | None:
    """The nodes that a request selects, by their names and labels; None where it selects all."""
    if not request.selects:
        return None
    return frozenset(name for name, view in cluster.nodes.items() if selected(name, view.labels, request))


def _asked(nodes: Mapping[str, int]) -> tuple[frozenset[str], int]:
    """The topology classes that are searched where a job asks, from how many nodes have each, and how many these are:
    those of many nodes first, as long as they are few in all."""
    asked, left = set[str](), ASKED_NODES
    for name in sorted(nodes, key=lambda name: (-nodes[name], name)):
        if nodes[name] <= left:
            asked.add(name)
            left -= nodes[name]
    return frozenset(asked), ASKED_NODES - left


def _selected(request: Request) -> Hashable:
    """What a request selects and avoids."""
    return request.node_selector, request.affinity, request.volumes, request.avoided
