"""The levels of a cluster, found by counts that every event keeps: what labels the nodes bear, and how many are in an
NVLink domain. A node that moves costs what it bears, not what all nodes bear."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Self

from immutables import Map, MapMutation

from closeknit.cluster.immutable.table import EMPTY
from closeknit.cluster.network.levels import SCHEMES, Levels, Place, Scheme, nvlink_domain

LabelledLevels = tuple[tuple[str, str], ...]
"""(level, label key), outermost first."""

_SCHEME_KEYS = tuple({key: None for scheme in SCHEMES for key in scheme.keys})


@dataclass(frozen=True, slots=True)
class _Found:
    """Results of the counts over all nodes; the counts per NVLink domain depend on them."""

    labelled: LabelledLevels = ()
    nvlink_labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Census:
    """Counts over the nodes of a cluster. Equal nodes give equal counts, whatever the history."""

    given: LabelledLevels = ()
    """Levels of the ClusterTopology; empty to find them by labels."""
    bearing: Map[str, int] = EMPTY
    """Label key of a scheme -> number of nodes with a value for it."""
    members: int = 0
    """Nodes in an NVLink domain."""
    found: _Found = field(default_factory=_Found)

    def after(
        self,
        given: LabelledLevels,
        moves: Iterable[tuple[Place | None, Place | None]],
        places: Callable[[], Iterable[Place]],
    ) -> Self:
        """The census after moves of nodes between places; None for outside.

        `places` gives all nodes as they are now; it is asked only where the scheme of levels itself has changed.
        """
        moves = [(before, now) for before, now in moves if before != now]
        if not moves and given == self.given:
            return self
        bearing = self.bearing.mutate()
        for place, sign in _signed(moves):
            for key in _SCHEME_KEYS:
                if place.labels.get(key):
                    _add(bearing, key, sign)
        census = replace(self, given=given, bearing=bearing.finish())
        found = census._find()
        if found == self.found:
            return census._with_domains(_signed(moves))
        return replace(census, members=0, found=found)._with_domains((place, 1) for place in places())

    @property
    def levels(self) -> Levels:
        """The levels."""
        return Levels(self.found.labelled, has_nvlink_domain=self.members > 0, nvlink_labels=self.found.nvlink_labels)

    def _find(self) -> _Found:
        if self.given:
            return _Found(self.given)
        scheme = next((scheme for scheme in SCHEMES if self._is_borne(scheme)), Scheme(()))
        labelled = tuple((level, key) for level, key in scheme.levels if key in self.bearing)
        return _Found(labelled, scheme.nvlink)

    def _is_borne(self, scheme: Scheme) -> bool:
        return any(key in self.bearing for key in scheme.keys)

    def _with_domains(self, moves: Iterable[tuple[Place, int]]) -> Self:
        labels = self.found.nvlink_labels
        return replace(self, members=self.members + sum(sign for place, sign in moves if nvlink_domain(place, labels)))


def _signed(moves: Iterable[tuple[Place | None, Place | None]]) -> Iterable[tuple[Place, int]]:
    """Each entered (1) or left (-1) place."""
    for before, now in moves:
        if now is not None:
            yield now, 1
        if before is not None:
            yield before, -1


def _add(counts: MapMutation[str, int], key: str, amount: int) -> None:
    """Adds to one count of a map under construction, and drops it at 0."""
    now = counts.get(key, 0) + amount
    if now:
        counts[key] = now
    else:
        del counts[key]
