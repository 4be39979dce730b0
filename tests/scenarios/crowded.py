"""Small clusters whose GPUs jobs of several priorities hold, and an urgent job that finds no room there."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import combinations
from typing import Any

from closeknit.api.names import JobKey
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place
from closeknit.placement.values.request import NOBODY, request
from scenarios.machines import dgx1v
from scenarios.manifests import (
    booked,
    cluster_topology,
    condition,
    node,
    node_topology,
    priority_class,
    resource_slice,
    training_job,
)
from scenarios.story import NOW

URGENT = JobKey("team-b", "urgent")
TABLES = Tables()
SPECS: tuple[dict[str, Any], ...] = (
    {"gpus": 1},
    {"gpus": 2},
    {"gpus": 4},
    {"gpus": 8},
    {"gpus": 6},
    {"gpus": 12},
    {"gpus": 8, "topology": {"gpusPerNode": 4}},
    {"gpus": 8, "topology": {"gpusPerNode": 2}},
    {"gpus": 16, "topology": {"gpusPerNode": 8}},
    {"gpus": 8, "topology": {"fabric": {"required": "rack"}}},
    {"gpus": 12, "topology": {"fabric": {"required": "rack"}}},
    {"gpus": 6, "topology": {"fabric": {"required": "host"}}},
    {"gpus": 8, "topology": {"fabric": {"preferred": "rack", "patience": "1h"}}},
    {"gpus": 4, "topology": {"nvlink": "Required"}, "parallelism": {"tensor": 4}},
    {"gpus": 8, "topology": {"nvlink": "Required"}, "parallelism": {"tensor": 4}},
    {"gpus": 4, "gpu": {"binding": "DRA"}},
)


@dataclass(frozen=True)
class Holding:
    """A job of lower priority."""

    name: str
    gpus: int
    age_s: int


@cache
def quads() -> dict[str, Any]:
    """A machine of two NVLink quads."""
    return dgx1v().wire()


def machine_of(name: str, chance: random.Random, kind: str, rack: str) -> Iterator[dict[str, Any]]:
    """A node: of GPUs that nothing joins, or of two quads; bound by claims or by a device plugin."""
    labels = {"net.example/rack": rack}
    topology = node_topology(name)
    if kind != "plain":
        gpus = [{**gpu, "uuid": f"GPU-{name}-{gpu['index']}"} for gpu in quads()["gpus"]]
        topology["spec"] = {**quads(), "gpus": gpus}
    is_dra = kind != "plugin" and chance.random() < 0.8
    yield node(name, gpus=None if is_dra else 8, labels=labels)
    yield topology
    if is_dra:
        yield resource_slice(name, range(8))


def site(seed: int, jobs: range = range(1, 10)) -> tuple[Cluster, list[Holding]]:
    """Some nodes, so many jobs of several priorities that hold parts of them, and an urgent one."""
    chance = random.Random(seed)  # noqa: S311 - a cluster that can be seen again
    objects: list[dict[str, Any]] = [cluster_topology("rack"), priority_class("high", 100), priority_class("mid", 50)]
    kind = chance.choice(("plain", "quads", "plugin"))
    is_crowded = min(jobs) > 9
    nodes = chance.choice((4, 5, 6) if is_crowded else (1, 2, 2, 3, 4))
    free = {f"gpu-{number}": list(range(8)) for number in range(1, nodes + 1)}
    is_dra = {}
    for number, name in enumerate(free):
        manifests = list(machine_of(name, chance, kind, f"r{number % 2}"))
        is_dra[name] = len(manifests) > 2
        objects += manifests
    low: list[Holding] = []
    for number in range(chance.choice(jobs)):
        names = chance.sample(sorted(free), k=min(len(free), chance.choice((1, 1, 1, 2))))
        count = chance.choice((1, 1, 2, 2, 2, 4) if is_crowded else (1, 2, 2, 4, 8))
        if any(len(free[name]) < count for name in names):
            continue
        shares = []
        for name in names:
            gpus = sorted(chance.sample(free[name], k=count))
            free[name] = [gpu for gpu in free[name] if gpu not in gpus]
            shares.append((name, gpus))
        age_s = chance.choice((0, 60, 600, 3600, chance.randint(1, 9999)))
        binding = "DRA" if all(is_dra[name] for name in names) else "WholeNode" if count == 8 else "BestEffort"
        ran = {**condition("Running"), "lastTransitionTime": timestamp(NOW - timedelta(seconds=age_s))}
        spec: dict[str, Any] = {
            "gpus": count * len(names),
            **chance.choice(({}, {}, {}, {"priorityClassName": "mid"}, {"priorityClassName": "high"})),
        }
        name = f"low-{number}"
        placement = booked(*shares, binding=binding)
        for each in placement["nodes"]:
            each["binding"] = "DRA" if is_dra[each["name"]] else "WholeNode" if count == 8 else "BestEffort"
        objects.append(training_job(name, spec=spec, attempt=1, conditions=[ran], placement=placement))
        if spec.get("priorityClassName") != "high":
            low.append(Holding(name, spec["gpus"], age_s))
    urgent = training_job("urgent", spec={**chance.choice(SPECS), "priorityClassName": "high"})
    urgent["metadata"]["creationTimestamp"] = timestamp(NOW)
    objects.append(urgent)
    decoded = (from_document(each) for each in objects)
    return build(each for each in decoded if each is not None), low


def without(cluster: Cluster, gone: Sequence[Holding]) -> Cluster:
    """The cluster once these hold nothing."""
    for each in gone:
        job = cluster.jobs[JobKey("team-b", each.name)]
        cluster = cluster.with_job(job.model_copy(update={"status": job.status.model_copy(update={"placement": None})}))
    return cluster


def fits(cluster: Cluster, gone: Sequence[Holding]) -> bool:
    """Whether the urgent job fits without these."""
    asked = request(NOBODY, cluster.jobs[URGENT].spec)
    return can_place(without(cluster, gone), asked, TABLES)


def cost(gone: Sequence[Holding]) -> int:
    """GPU-seconds that these lose."""
    return sum(each.gpus * each.age_s for each in gone)


def least_cost(cluster: Cluster, low: Sequence[Holding]) -> int | None:
    """The least cost of all choices after which the urgent job fits; None where none does."""
    choices = [gone for count in range(1, len(low) + 1) for gone in combinations(low, count)]
    return next((cost(gone) for gone in sorted(choices, key=cost) if fits(cluster, gone)), None)
