"""The wait of a job for the level that it prefers, though it would fit elsewhere.

One that prefers none is kept in one machine where that has room for it: for a while it waits for one.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from closeknit.api.names import HOST_LEVEL
from closeknit.cluster.cluster import Cluster
from closeknit.placement.gang.cache import Tables
from closeknit.placement.refusals.ideal import could_place, ideal_gb_s
from closeknit.placement.values.request import Request

_LITTLE = 0.1  # of the bandwidth in one machine


def patient(asked: Request, cluster: Cluster, tables: Tables) -> Request | None:
    """The request of a job while it is patient: its preferred level as if required; None where that is the same
    request, where it would not fit even in the empty cluster, or where tearing a job without a preference costs little.

    One that is too large for any domain of the level that it prefers asks for the next one outwards that could hold it.
    It `gives_way`: it is to wait so only while many others do.
    """
    if asked.mig is not None:  # one device is in one domain of every level
        return None
    preferred, required, levels = asked.preferred_level or HOST_LEVEL, asked.required_level, cluster.levels
    if preferred not in levels or (required is not None and required not in levels):
        return None
    if required is not None and levels.index(required) >= levels.index(preferred):
        return None
    waiting = replace(asked, patient_level=preferred)
    if asked.preferred_level is None:
        worth_it = could_place(cluster, waiting, tables) and _is_torn_at_a_loss(asked, cluster, tables)
        return waiting if worth_it else None
    outmost = levels.index(required) + 1 if required is not None else 0
    outwards = reversed(levels[outmost : levels.index(preferred) + 1])
    each = (replace(asked, patient_level=level) for level in outwards)
    return next((waiting for waiting in each if could_place(cluster, waiting, tables)), None)


def _is_torn_at_a_loss(asked: Request, cluster: Cluster, tables: Tables) -> bool:
    """Whether a gang that fits into one machine is predicted to lose more than a little over several.

    Both are of an empty cluster, so that the answer does not depend on what is free this second. The even halves, or
    for an odd number the even parts, are what a torn gang can do best. Where nothing is predicted for one machine
    the gain of a wait is unknown; where nothing is predicted between machines, that network is not described.
    """
    whole = ideal_gb_s(cluster, replace(asked, gpus_per_node=asked.gpus), tables)
    if whole is None:
        return False
    part = next(each for each in range(asked.gpus // 2, 0, -1) if asked.gpus % each == 0)
    torn = ideal_gb_s(cluster, replace(asked, gpus_per_node=part), tables)
    return torn is None or torn < (1 - _LITTLE) * whole


def asked_again_at(until: datetime | None, away: datetime | None) -> datetime | None:
    """When to ask again for a refused job though nothing has changed: the end of its patience or of an avoided node's
    time, whichever is sooner."""
    return min((moment for moment in (until, away) if moment is not None), default=None)


class Patience:
    """Requests of patient jobs, found once for each request of a walk."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._known: dict[Request, Request] = {}

    def asked(self, asked: Request, cluster: Cluster, take: Callable[[], bool]) -> Request | None:
        """The job's request while it is patient; None where that is unknown and `take` says no."""
        known = self._known.get(asked)
        if known is None:
            if not take():
                return None
            known = self._known[asked] = patient(asked, cluster, self._tables) or asked
        return known
