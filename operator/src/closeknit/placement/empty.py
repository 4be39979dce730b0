"""What a gang could have if the cluster were empty and healthy: nothing of it changes while jobs come and go."""

from collections.abc import Hashable
from dataclasses import replace

from closeknit.api.names import JobKey
from closeknit.api.trainingjob import BindingPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.placement.joints import Joints
from closeknit.placement.request import DENSE_TRAFFIC, Request
from closeknit.placement.search import best_layout, fits
from closeknit.placement.tables import Same, Tables

NOBODY = JobKey("", "")


def could_place(cluster: Cluster, request: Request, tables: Tables) -> bool:
    """Whether `place` would give a Placement in an empty, healthy copy of the cluster, where whatever is free can be
    bound."""
    free = replace(
        request,
        job=NOBODY,
        pipeline=1,
        expert=1,
        traffic=DENSE_TRAFFIC,
        binding=BindingPolicy.AUTO,
        avoided=frozenset(),
    )
    ground = tables.ground(cluster, free, empty=True)
    kept = tables.fits(ground.root)
    key = ("empty", read_of(cluster, request), free)
    known = kept.get(key)
    if known is None:
        known = kept.put(key, (fits(Joints.of(cluster), ground, free, tables),))
    return known[0]


def ideal_gb_s(cluster: Cluster, request: Request, tables: Tables) -> float | None:
    """The best bandwidth of the gang in an empty, healthy copy of the cluster; None where unknown, or where none fits.

    Its levels are those of the cluster.
    """
    free = replace(
        request,
        job=NOBODY,
        pipeline=1,
        expert=1,
        traffic=DENSE_TRAFFIC,
        preferred_level=None,
        patient_level=None,
        min_bus_bandwidth_gb_s=None,
        binding=BindingPolicy.AUTO,
        avoided=frozenset(),
    )
    kept = tables.ideals(cluster.forest.empty)
    key = (read_of(cluster, request), free)
    known = kept.get(key)
    if known is None:
        ground = tables.ground(cluster, free, empty=True)
        layout = best_layout(Joints.of(cluster), ground, free, tables)
        known = kept.put(key, (layout.prediction.gb_s if layout else None,))
    return known[0]


def read_of(cluster: Cluster, request: Request) -> Hashable:
    """What a search reads of a cluster beside its trees."""
    fabric = cluster.fabric
    return (
        cluster.levels,
        fabric.rail_isolated,
        tuple(sorted(fabric.level_bandwidth_gb_s.items())),
        cluster.imex_with,
        Same(cluster.forest.labels) if request.selects else None,
    )
