"""What a ClusterTopology's status tells. Every field is one of closeknit.api, and a test compares both: the models take
a third of a second to import."""

from collections.abc import Mapping

import msgspec

from closeknit.cli.answers.status_answer import (
    ClusterLine,
    DomainLine,
    GpuTotals,
    JobCounts,
    LevelLine,
    WaitLine,
)


class _Told(msgspec.Struct, frozen=True, rename="camel"):
    """Base: camelCase on the wire, unknown fields are skipped."""


class ToldGpus(_Told, frozen=True):
    """Of status.summary.gpus."""

    free: int = 0
    held: int = 0
    mig: int = 0
    unusable: int = 0
    excluded: int = 0


class ToldDomain(_Told, frozen=True):
    """Of status.summary.domains."""

    name: str
    nodes: int = 0
    gpus: int = 0
    free_gpus: int = 0


class ToldWait(_Told, frozen=True):
    """Of status.summary.waiting."""

    reason: str
    jobs: int = 0
    gpus: int = 0
    since: str | None = None


class ToldSummary(_Told, frozen=True):
    """Of status.summary."""

    told: str | None = None
    operator_version: str | None = None
    nodes: int = 0
    excluded_nodes: Mapping[str, int] = {}
    gpus: ToldGpus = ToldGpus()
    largest_gang: int | None = None
    largest_inside: Mapping[str, int] = {}
    islands: Mapping[str, int] = {}
    domains: tuple[ToldDomain, ...] = ()
    jobs: Mapping[str, int] = {}
    waiting: tuple[ToldWait, ...] = ()


class ToldLevel(_Told, frozen=True):
    """Of status.levels."""

    name: str
    domains: int = 0
    gpus: int = 0
    free_gpus: int = 0


class ToldTopologyStatus(_Told, frozen=True):
    """Of status."""

    levels: tuple[ToldLevel, ...] = ()
    summary: ToldSummary | None = None


class ToldTopology(_Told, frozen=True):
    """A ClusterTopology."""

    status: ToldTopologyStatus = ToldTopologyStatus()


def cluster_line(status: ToldTopologyStatus) -> ClusterLine | None:
    """The answer's part; None where the operator has not told it."""
    glance = status.summary
    if glance is None:
        return None
    return ClusterLine(
        told=glance.told,
        operator_version=glance.operator_version,
        nodes=glance.nodes,
        excluded_nodes=dict(glance.excluded_nodes),
        gpus=GpuTotals(
            free=glance.gpus.free,
            held=glance.gpus.held,
            mig=glance.gpus.mig,
            unusable=glance.gpus.unusable,
            excluded=glance.gpus.excluded,
        ),
        largest_gang=glance.largest_gang,
        levels=tuple(
            LevelLine(
                name=each.name,
                domains=each.domains,
                gpus=each.gpus,
                free_gpus=each.free_gpus,
                largest_gang=glance.largest_inside.get(each.name),
            )
            for each in status.levels
        ),
        islands=dict(glance.islands),
        domains=tuple(
            DomainLine(name=each.name, nodes=each.nodes, gpus=each.gpus, free_gpus=each.free_gpus)
            for each in glance.domains
        ),
        jobs=JobCounts(
            states=dict(glance.jobs),
            waiting=tuple(
                WaitLine(reason=each.reason, jobs=each.jobs, gpus=each.gpus, since=each.since)
                for each in glance.waiting
            ),
        ),
    )
