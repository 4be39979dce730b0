"""The cluster at a glance: numbers of nodes, GPUs and jobs, and nobody's name."""

from datetime import timedelta

from closeknit.api.cluster_summary import MOST_DOMAINS, ClusterSummary
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.overview.summary import news_of, summary
from closeknit.lifecycle.topology_status import topology_news
from closeknit.placement.fragmentation import fragmentation
from closeknit.placement.gang.cache import Tables
from scenarios.manifests import Manifest, booked, cut, node, node_topology, training_job
from scenarios.views import NOON, cluster

TOPOLOGY: Manifest = {
    "apiVersion": "closeknit.dev/v1alpha1",
    "kind": "ClusterTopology",
    "metadata": {"name": "default", "uid": "u", "resourceVersion": "1"},
    "spec": {"levels": [{"name": "rack", "nodeLabel": "net.example/rack"}]},
}


def site(*more: Manifest, racks: int = 2, nodes: int = 4) -> Cluster:
    found: list[Manifest] = [TOPOLOGY, *more]
    for number in range(nodes):
        labels = {"net.example/rack": f"r{number % racks}"}
        found += [node(f"n{number}", labels=labels, gpus=8), node_topology(f"n{number}", count=8)]
    return cluster(*found)


def waiting(name: str, reason: str, since: str, gpus: int = 16) -> Manifest:
    pending = {"reason": reason, "message": "words", "since": since}
    status = {"state": "Queued", "reason": reason, "pending": pending}
    return {**training_job(name), "spec": {**training_job(name)["spec"], "gpus": gpus}, "status": status}


def glance(found: Cluster) -> ClusterSummary:
    return summary(found, fragmentation(found, Tables()), NOON, "1.2.3")


def test_gpus_by_state_and_what_is_free_together() -> None:
    found = glance(site(training_job("one", placement=booked(("n0", range(8))))))
    assert (found.nodes, found.gpus.free, found.gpus.held, found.operator_version) == (4, 24, 8, "1.2.3")
    assert (found.largest_gang, found.largest_inside, found.islands) == (
        24,
        {"rack": 16, "host": 8},
        {"1": 24},
    )  # no NVLink
    assert [(each.name, each.nodes, each.gpus, each.free_gpus) for each in found.domains] == [
        ("r1", 2, 16, 16),
        ("r0", 2, 16, 8),
    ]


def test_a_node_that_gets_no_job_is_counted_with_its_reason() -> None:
    gone = cluster(TOPOLOGY, node_topology("alone", count=8), node("n0", gpus=8), node_topology("n0", count=8))
    told = glance(gone)
    assert (told.nodes, told.gpus.excluded, told.excluded_nodes) == (2, 8, {"NotReady": 1})


def test_jobs_by_state_and_why_they_wait_the_most_gpus_first() -> None:
    found = glance(
        site(
            waiting("a", "NoDomain", "2026-11-21T11:00:00Z"),
            waiting("b", "NoDomain", "2026-11-21T10:00:00Z"),
            waiting("c", "InsufficientGPUs", "2026-11-21T09:00:00Z", gpus=64),
            waiting("d", "Ours/secret", "2026-11-21T09:00:00Z", gpus=1),
            training_job("new"),
        )
    )
    assert [(each.reason, each.jobs, each.gpus, each.since) for each in found.waiting] == [
        ("InsufficientGPUs", 1, 64, "2026-11-21T09:00:00Z"),
        ("NoDomain", 2, 32, "2026-11-21T10:00:00Z"),
        ("Undecided", 1, found.waiting[2].gpus, found.waiting[2].since),
        ("Other", 1, 1, "2026-11-21T09:00:00Z"),
    ]
    assert found.jobs == {"Queued": 5}


def test_nobodys_name_is_in_it() -> None:
    told = glance(site(waiting("secret-project", "NoDomain", "2026-11-21T11:00:00Z"))).model_dump_json()
    assert "secret-project" not in told and "team-b" not in told and '"n0"' not in told


def test_of_many_racks_the_freest_are_told() -> None:
    found = glance(site(training_job("one", placement=booked(("n0", range(8)))), racks=40, nodes=40))
    assert len(found.domains) == MOST_DOMAINS
    assert "r0" not in {each.name for each in found.domains}


def test_it_is_written_again_where_a_number_has_changed() -> None:
    first = site()
    (news,) = topology_news(first, NOON, glance(first))
    assert news.status.summary == glance(first)
    stored = {**TOPOLOGY, "status": news.status.wire()}
    objects = [each for number in range(4) for each in (
        node(f"n{number}", labels={"net.example/rack": f"r{number % 2}"}, gpus=8), node_topology(f"n{number}", count=8)
    )]  # fmt: skip
    again = cluster(stored, *objects)
    later = NOON + timedelta(minutes=5)
    assert topology_news(again, later, summary(again, fragmentation(again, Tables()), later, "1.2.3")) == ()
    booked_since = cluster(stored, *objects, training_job("one", placement=booked(("n0", range(8)))))
    (news,) = topology_news(booked_since, later, summary(booked_since, None, later, "1.2.3"))
    assert news.status.summary is not None
    assert (news.status.summary.told, news.status.summary.largest_gang) == ("2026-11-21T12:05:00Z", None)


def test_the_moment_alone_is_no_news() -> None:
    found = glance(site())
    earlier = found.model_copy(update={"told": "2026-11-20T00:00:00Z"})
    assert news_of(found, earlier) is earlier
    assert news_of(found, None) is found


def test_a_number_that_an_older_crd_drops_is_not_told_at_each_look() -> None:
    found = glance(cluster(TOPOLOGY, node("n0", gpus=7), cut(node_topology("n0", count=8), 0, count=3)))
    assert (found.gpus.mig, found.gpus.free) == (1, 7)
    kept = found.model_copy(update={"told": "2026-11-20T00:00:00Z", "gpus": found.gpus.model_copy(update={"mig": 0})})
    assert news_of(found, kept) is kept
    whole = kept.model_copy(update={"gpus": kept.gpus.model_copy(update={"free": 8})})  # before it was cut
    assert news_of(found, whole) is found
    assert news_of(whole, found) is whole
