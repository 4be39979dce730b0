"""The levels of a cluster, found by counts that every event keeps: what labels the nodes bear, and which values of a
level each NVLink domain meets. A node that moves costs what it bears, not what all nodes bear."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from immutables import Map

from closeknit.cluster.levels import SCHEMES, Levels, Place, Scheme, nvlink_domain
from closeknit.cluster.table import EMPTY

K = TypeVar("K", bound=Any)
LabelledLevels = tuple[tuple[str, str], ...]
"""(level, label key), outermost first."""

_SCHEME_KEYS = tuple(
    {key: None for scheme in SCHEMES for key in (*(key for _, key in scheme.levels), scheme.nvlink_domain) if key}
)


@dataclass(frozen=True, slots=True)
class _Found:
    """What follows from the counts over all nodes; what is counted per NVLink domain depends on it."""

    labelled: LabelledLevels = ()
    nvlink_label: str | None = None


@dataclass(frozen=True, slots=True)
class Census:
    """Counts over the nodes of a cluster. Two of the same nodes are equal, whatever came and went before."""

    given: LabelledLevels = ()
    """Levels of the ClusterTopology; empty where they are to be found by labels."""
    bearing: Map[str, int] = EMPTY
    """Label key of a scheme -> nodes with a value for it."""
    known: int = 0
    """Nodes whose NVLink domain shows without any scheme's label."""
    members: Map[str, int] = EMPTY
    """NVLink domain -> nodes in it."""
    values: Map[tuple[str, str, str], int] = EMPTY
    """(NVLink domain, label key of a level, value) -> nodes with it."""
    met: Map[tuple[str, str], int] = EMPTY
    """(NVLink domain, label key of a level) -> different values in it."""
    straddling: Map[str, int] = EMPTY
    """Label key of a level -> NVLink domains that meet more than one value of it."""
    found: _Found = field(default_factory=_Found)

    def after(
        self,
        given: LabelledLevels,
        moves: Iterable[tuple[Place | None, Place | None]],
        places: Callable[[], Iterable[Place]],
    ) -> Self:
        """The census after nodes have moved from a place to another, None for a node that comes or goes.

        `places` gives all nodes as they are now; it is asked only where the scheme of levels itself has changed.
        """
        moves = [(before, now) for before, now in moves if before != now]
        if not moves and given == self.given:
            return self
        bearing, known = self.bearing.mutate(), self.known
        for place, sign in _signed(moves):
            for key in _SCHEME_KEYS:
                if place.labels.get(key):
                    _add(bearing, key, sign)
            known += sign if nvlink_domain(place, None) else 0
        census = replace(self, given=given, bearing=bearing.finish(), known=known)
        found = census._find()
        if found == self.found:
            return census._with_domains(_signed(moves))
        empty = replace(census, members=Map(), values=Map(), met=Map(), straddling=Map(), found=found)
        return empty._with_domains((place, 1) for place in places())

    @property
    def levels(self) -> Levels:
        """The levels: those inside which no NVLink domain straddles two domains are outside nvlink-domain."""
        labelled, label = self.found.labelled, self.found.nvlink_label
        if not self.members:
            return Levels(labelled)
        straddled = (depth for depth, (_, key) in enumerate(labelled) if self.straddling.get(key))
        around = next(straddled, len(labelled))
        return Levels(labelled[:around], labelled[around:], has_nvlink_domain=True, nvlink_label=label)

    def _find(self) -> _Found:
        if self.given:
            return _Found(self.given)
        scheme = next((scheme for scheme in SCHEMES if self._is_borne(scheme)), Scheme(()))
        labelled = tuple((level, key) for level, key in scheme.levels if key in self.bearing)
        return _Found(labelled, None if self.known else scheme.nvlink_domain)

    def _is_borne(self, scheme: Scheme) -> bool:
        return any(key in self.bearing for _, key in scheme.levels) or scheme.nvlink_domain in self.bearing

    def _with_domains(self, moves: Iterable[tuple[Place, int]]) -> Self:
        members, values, met = self.members.mutate(), self.values.mutate(), self.met.mutate()
        straddling = self.straddling.mutate()
        for place, sign in moves:
            domain = nvlink_domain(place, self.found.nvlink_label)
            if not domain:
                continue
            _add(members, domain, sign)
            for _, key in self.found.labelled:
                value = place.labels.get(key)
                if not value:
                    continue  # a node without a label speaks for no domain of that level
                there = _add(values, (domain, key, value), sign)
                if there == (1 if sign > 0 else 0):  # the first or the last node with that value
                    several = _add(met, (domain, key), sign)
                    if several == (2 if sign > 0 else 1):
                        _add(straddling, key, sign)
        return replace(
            self,
            members=members.finish(),
            values=values.finish(),
            met=met.finish(),
            straddling=straddling.finish(),
        )


def _signed(moves: Iterable[tuple[Place | None, Place | None]]) -> Iterable[tuple[Place, int]]:
    """Each place that is taken (1) or left (-1)."""
    for before, now in moves:
        if now is not None:
            yield now, 1
        if before is not None:
            yield before, -1


def _add(counts: Any, key: Any, amount: int) -> int:
    """Adds to one count of a map that is being written, drops one that comes to 0, and gives what it is now."""
    now: int = counts.get(key, 0) + amount
    if now:
        counts[key] = now
    else:
        del counts[key]
    return now
