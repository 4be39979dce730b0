"""What an operator would tell of the cluster of a file."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from closeknit.api.clustertopology import ClusterTopologyStatus
from closeknit.cli.answers.status_answer import ClusterLine
from closeknit.cli.jobs.file_jobs import clock_of, read_once
from closeknit.cli.status.told_topology import ToldTopologyStatus, cluster_line
from closeknit.cluster.cluster import build
from closeknit.lifecycle.overview.summary import summary
from closeknit.lifecycle.topology_status import levels_of
from closeknit.placement.fragmentation import fragmentation
from closeknit.placement.gang.cache import Tables


def file_glance(file: Path) -> ClusterLine | None:
    """Raises BadInput."""
    now = clock_of(file, datetime.now(UTC))
    cluster = build(read_once(file).objects).at(now)
    glance = summary(cluster, fragmentation(cluster, Tables()), now, "")
    told = ClusterTopologyStatus(levels=levels_of(cluster), summary=glance)
    line = cluster_line(msgspec.convert(told.wire(), ToldTopologyStatus))
    return None if line is None else msgspec.structs.replace(line, operator_version=None)
