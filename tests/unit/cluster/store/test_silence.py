"""Agents that fall silent: what the time and their heartbeats alone change of a Cluster."""

from datetime import timedelta

from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.watched_kinds import change
from scenarios.manifests import node, node_topology
from scenarios.views import NOON, parsed
from scenarios.views import cluster as cluster_of


def test_time_alone_changes_only_the_nodes_whose_agent_fell_silent() -> None:
    beats = {"gpu-1": "2026-11-21T12:00:00Z", "gpu-2": "2026-11-21T12:05:00Z"}
    cluster = cluster_of(
        *(node(name) for name in (*beats, "gpu-3")),
        *(node_topology(name, heartbeatTime=beat) for name, beat in beats.items()),
        node_topology("gpu-3"),
    )
    assert cluster.newest_heartbeat(NOON + timedelta(days=1)) == NOON + timedelta(minutes=5)
    assert cluster.newest_heartbeat(NOON + timedelta(minutes=4)) == NOON

    def excluded(cluster: Cluster) -> list[str]:
        return sorted(name for name, view in cluster.nodes.items() if view.exclusion)

    assert excluded(cluster.at(NOON + timedelta(minutes=15))) == []
    assert excluded(cluster.at(NOON + timedelta(minutes=15, seconds=1))) == ["gpu-1"]
    assert excluded(cluster.at(NOON + timedelta(minutes=21))) == ["gpu-1", "gpu-2"]
    late = cluster.at(NOON + timedelta(minutes=21))
    assert late.at(NOON + timedelta(hours=9)).nodes is late.nodes
    assert late.at(NOON) == cluster  # a clock that was set back
    again = late.after([change(parsed(node_topology("gpu-1", heartbeatTime="2026-11-21T12:20:00Z")))])
    assert excluded(again) == ["gpu-2"]
    assert excluded(again.at(NOON + timedelta(minutes=36))) == ["gpu-1", "gpu-2"]


def test_a_heartbeat_of_the_future_counts_as_the_moment_it_was_seen() -> None:
    far = node_topology("gpu-1", heartbeatTime="3000-01-01T00:00:00Z")
    near = node_topology("gpu-2", heartbeatTime="2026-11-21T13:00:00Z")
    cluster = cluster_of(node("gpu-1"), node("gpu-2"), far, near)

    def excluded(cluster: Cluster) -> list[str]:
        return sorted(name for name, view in cluster.nodes.items() if view.exclusion)

    seen = cluster.at(NOON)
    assert excluded(seen) == []
    listed_again = seen.at(NOON + timedelta(minutes=14)).after([change(parsed(far)), change(parsed(near))])
    assert excluded(listed_again.at(NOON + timedelta(minutes=15))) == []
    silent = listed_again.at(NOON + timedelta(minutes=16))
    assert excluded(silent) == ["gpu-1", "gpu-2"]
    exclusion = silent.nodes["gpu-1"].exclusion
    assert exclusion is not None
    assert "at 2026-11-21T12:00:00Z, more than 15 min ago" in exclusion.message
    # A clock that runs an hour ahead, or an operator's that was an hour behind: the heartbeat counts once it is over.
    assert excluded(silent.at(NOON + timedelta(minutes=60))) == ["gpu-1"]
    alive = silent.after([change(parsed(node_topology("gpu-1", heartbeatTime="3000-01-01T00:05:00Z")))])
    assert excluded(alive.at(NOON + timedelta(minutes=17))) == ["gpu-2"]
    assert excluded(cluster.at(NOON + timedelta(minutes=16))) == []  # a new operator knows of no moment before
