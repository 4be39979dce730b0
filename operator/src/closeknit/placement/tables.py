"""What placement keeps from one decision to the next: an explicit value, bounded, that never changes an answer.

Everything in it can be thrown away at any moment. One decision at a time uses it.
"""

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from closeknit.cluster.cluster import Cluster
from closeknit.cluster.forest import Domain, MachineKind
from closeknit.machine.graph import Machine
from closeknit.placement.admission import selected
from closeknit.placement.ask import Choice
from closeknit.placement.binding import Seat
from closeknit.placement.fabric import Filling
from closeknit.placement.ground import Ground, Translation
from closeknit.placement.offer import Offer, Terms
from closeknit.placement.paths import Paths
from closeknit.placement.request import Request
from closeknit.placement.rings import Rings, rings
from closeknit.placement.sets import Sets
from closeknit.placement.stage import Stage

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

KINDS = 1024  # of machines
SETS = 1 << 16  # of GPUs whose rings are known
OFFERS = 1 << 16
STAGES = 512  # what one size of share is worth to one kind of job, on every offer: some dozens for one decision
FILLINGS = 512  # searches over the tree; some dozens for one decision
GROUNDS = 64  # kinds of requests by what they select, tolerate and filter, and selections of labels
ANSWERS = 4096


class Share(NamedTuple):
    """The set of GPUs to take of an offer."""

    choice: Choice
    seat: Seat
    cost: int
    """Packed, as cost.Scale has it."""


class Same:
    """Stands for one object in a key: equal to itself alone."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class Kept(Generic[K, V]):
    """A mapping of bounded size: what was used least recently goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The value of a key, None where it is not known."""
        value = self._values.pop(key, None)
        if value is not None:
            self._values[key] = value
        return value

    def put(self, key: K, value: V) -> V:
        """Keeps a value, and gives it back."""
        self._values[key] = value
        if len(self._values) > self._most:
            del self._values[next(iter(self._values))]
        return value


class Tables:
    """Kept per kind of machine, per offer, and per kind of request."""

    def __init__(self) -> None:
        self._sets: Kept[str, Sets] = Kept(KINDS)
        self._rings: Kept[Paths, Rings] = Kept(SETS)
        self._offers: Kept[Terms, Offer] = Kept(OFFERS)
        self.values: Kept[Hashable, Stage[float]] = Kept(STAGES)
        """(offers, what of a share, floor) -> the best that an offer has."""
        self.choices: Kept[Hashable, Stage[Share]] = Kept(STAGES)
        """(offers, share, floor) -> the set to take of an offer, how it is bound, and what that costs."""
        self.fillings: Kept[Hashable, Filling] = Kept(FILLINGS)
        """(offers, share, floor, way of counting) -> the search that has seen the last versions of the tree."""
        self._translations: Kept[Hashable, Translation] = Kept(GROUNDS)
        self._selections: Kept[Hashable, tuple[Domain, Domain]] = Kept(GROUNDS)
        self.ideals: Kept[Hashable, tuple[float | None]] = Kept(ANSWERS)
        """A request and what an empty cluster depends on -> its best bandwidth."""
        self.fits: Kept[Hashable, tuple[bool]] = Kept(ANSWERS)
        """A request and one version of a cluster -> whether it fits."""

    def learn(self, machine: Machine) -> None:
        """Works out what jobs ask of a machine, so that none of them waits for it; half a minute at worst."""
        self.sets_of(machine).learn()

    def sets_of(self, machine: Machine) -> Sets:
        """The sets of a machine, shared by all machines of its topology class."""
        found = self._sets.get(machine.topology_class)
        return found or self._sets.put(machine.topology_class, Sets(machine, self._rings_of))

    def ground(self, cluster: Cluster, request: Request, *, empty: bool = False) -> Ground:
        """What there is for a request in a cluster, or in an empty, healthy copy of it."""
        forest = cluster.forest
        now, emptied = forest.now, forest.empty
        if request.node_selector:
            now, emptied = self._selection(cluster, request)
        key = (empty, request.node_selector, request.tolerations, request.products, request.min_memory_bytes)
        translation = self._translations.get(key)
        if translation is None or translation.is_full:
            translation = self._translations.put(key, Translation(request, self._sets_of_kind, self._offer_of))
        return translation.ground(emptied if empty else now, len(cluster.levels))

    def _selection(self, cluster: Cluster, request: Request) -> tuple[Domain, Domain]:
        """The trees of the nodes that a request selects, now and empty."""
        forest, selector = cluster.forest, request.node_selector
        key = (Same(forest.now), Same(forest.labels), selector)
        found = self._selections.get(key)
        if found is None:
            names = frozenset(name for name, view in cluster.nodes.items() if selected(view.labels, request))
            whole = (Same(forest.empty), Same(forest.labels), selector)
            kept = self._selections.get(whole)
            only = forest.only(names)
            found = self._selections.put(key, (only.now, kept[1] if kept else only.empty))
            self._selections.put(whole, found)
        return found

    def _sets_of_kind(self, kind: MachineKind) -> Sets:
        return self.sets_of(kind.machine)

    def _offer_of(self, terms: Terms) -> Offer:
        return self._offers.get(terms) or self._offers.put(terms, Offer(terms, terms.pool.bit_count()))

    def _rings_of(self, paths: Paths) -> Rings:
        return self._rings.get(paths) or self._rings.put(paths, rings(paths))
