"""Lemons are placed last: a gang that could go to one goes elsewhere where it fits there, too.

Placement is asked with all nodes first. Where its answer has no lemon, it is the answer without them as well, so that a
cluster without lemons pays nothing, and a refusal says the same with and without them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.restart.lemons import Lemon, lemons
from closeknit.placement.values.placement import Placement, Share
from closeknit.placement.values.request import Request

Asked = Callable[[Request, Cluster], Placement | None]
"""Placement's answer to a request on a cluster; None where it does not fit."""


@dataclass(frozen=True)  # no slots: the lemons are looked for when the first gang gets GPUs
class LemonsLast:
    """The lemons of one decision."""

    cluster: Cluster
    now: datetime

    @cached_property
    def worst_first(self) -> tuple[Lemon, ...]:
        """Those that ended most runs first, of equal ones those that did last."""
        found = lemons(self.cluster, self.now)
        return tuple(sorted(found, key=lambda each: (-each.faults, -each.since.timestamp(), each.node, each.gpu or "")))

    def with_fewest(
        self, found: Placement, asked: Request, cluster: Cluster, ask: Asked, kept: Iterable[str] = ()
    ) -> Placement:
        """The placement with the fewest lemons: `found` where it has none, or nothing else fits. Nodes of `kept` stay
        whatever they are."""
        stay = frozenset(kept)
        shunned = [each for each in self.worst_first if each.node not in stay]
        if not shunned or not _has_any(found.shares, shunned):
            return found
        fits, most, best = 0, len(shunned), found
        tried = most  # all of them at first; then half of those of which it is not known
        while fits < most:
            answer = _without(asked, cluster, shunned[:tried], ask)
            if answer is None:
                most = tried - 1
            else:
                fits, best = tried, answer
            tried = (fits + most + 1) // 2
        return best

    def without(self, asked: Request, cluster: Cluster) -> tuple[Request, Cluster]:
        """The request and the cluster without any lemon."""
        if not self.worst_first:
            return asked, cluster
        nodes = frozenset(each.node for each in self.worst_first if each.gpu is None)
        return _past(asked, nodes), cluster.without(_devices(self.worst_first, nodes))


def _without(asked: Request, cluster: Cluster, shunned: Sequence[Lemon], ask: Asked) -> Placement | None:
    nodes = frozenset(each.node for each in shunned if each.gpu is None)
    return ask(_past(asked, nodes), cluster.without(_devices(shunned, nodes)))


def _past(asked: Request, nodes: frozenset[str]) -> Request:
    return replace(asked, avoided=asked.avoided | nodes)


def _devices(shunned: Sequence[Lemon], nodes: frozenset[str]) -> Mapping[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for each in shunned:
        if each.gpu is not None and each.node not in nodes:
            found[each.node] = found.get(each.node, frozenset()) | {each.gpu}
    return found


def _has_any(shares: Sequence[Share], shunned: Sequence[Lemon]) -> bool:
    gpus = {(each.node, each.gpu) for each in shunned}
    return any(
        (share.node, None) in gpus or any((share.node, uuid) in gpus for uuid in share.uuids) for share in shares
    )
