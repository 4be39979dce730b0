"""What an operator would tell of a cluster, counted here: of a file, or of a small cluster that has no place for it."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from closeknit.api.clustertopology import ClusterTopologyStatus
from closeknit.cli.answers.status_answer import ClusterLine
from closeknit.cli.jobs.file_jobs import clock_of
from closeknit.cli.live.cluster_objects import all_of
from closeknit.cli.status.told_topology import ToldTopologyStatus, cluster_line
from closeknit.cluster.cluster import build
from closeknit.cluster.store.watched_kinds import KINDS, ClusterObject
from closeknit.kube.errors import Forbidden, NotFound
from closeknit.kube.http.http_api import HttpApi
from closeknit.lifecycle.overview.summary import summary
from closeknit.lifecycle.topology_status import levels_of
from closeknit.placement.fragmentation import fragmentation
from closeknit.placement.gang.cache import Tables


def of_file(objects: Iterable[ClusterObject]) -> ClusterLine | None:
    """Of the objects of a file, at the moment when they were recorded."""
    there = list(objects)
    return _counted(there, clock_of(there, datetime.now(UTC)))


async def of_cluster(api: HttpApi) -> ClusterLine | None:
    """By listing what decisions read. Raises Forbidden."""
    found: list[ClusterObject] = []
    for kind in KINDS:
        with suppress(*((NotFound,) if kind.group else ()), *((Forbidden,) if kind.may_be_unserved else ())):
            found += [each async for each in all_of(api, kind) if each is not None]
    return _counted(found, datetime.now(UTC))


def _counted(objects: Iterable[ClusterObject], now: datetime) -> ClusterLine | None:
    cluster = build(objects).at(now)
    glance = summary(cluster, fragmentation(cluster, Tables()), now, "")
    told = ClusterTopologyStatus(levels=levels_of(cluster), summary=glance)
    line = cluster_line(msgspec.convert(told.wire(), ToldTopologyStatus))
    return None if line is None else msgspec.structs.replace(line, operator_version=None, told=None)
