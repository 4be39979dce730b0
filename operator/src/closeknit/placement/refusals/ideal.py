"""A gang's best in an empty, healthy cluster: it does not change while jobs come and go."""

from dataclasses import replace
from functools import partial

from closeknit.api.trainingjob import BindingPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.placement.gang.cache import Same, Tables
from closeknit.placement.gang.interconnect import Interconnect
from closeknit.placement.gang.search import best_layout, fits
from closeknit.placement.values.request import DENSE_TRAFFIC, NOBODY, Request


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
    joints, ground = Interconnect.of(cluster), tables.ground(cluster, free, empty=True)
    return tables.fits(ground.root).kept((joints, free), partial(fits, joints, ground, free, tables))


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
    joints, forest = Interconnect.of(cluster), cluster.forest

    def found() -> float | None:
        layout = best_layout(joints, tables.ground(cluster, free, empty=True), free, tables)
        return layout.prediction.gb_s if layout else None

    key = (joints, Same(forest.labels) if free.selects else None, free)
    return tables.ideals(forest.empty).kept(key, found)
