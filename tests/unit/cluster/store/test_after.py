"""The Cluster as a value: following any sequence of changes ends where building from what is left does."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ExclusionReason
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.immutable.heartbeats import STALE_AFTER
from closeknit.cluster.immutable.table import ObjectKey
from closeknit.cluster.store.watched_kinds import ClusterObject, ObjectChange, Stream, change
from closeknit.scheduling.reservation.earliest import Future, released, released_like
from scenarios.machines import hgx_h200
from scenarios.manifests import (
    Manifest,
    allocation,
    booked,
    cluster_topology,
    condition,
    device_taint_rule,
    node,
    node_topology,
    pod,
    priority_class,
    resource_claim,
    resource_slice,
    storage_class,
    told,
    training_job,
    uuids,
    volume,
    volume_claim,
    worker,
)
from scenarios.views import parsed, words

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = "2026-11-21T12:10:00Z"
NODES = ("a", "b", "c")
RACKS: tuple[dict[str, str], ...] = (
    {},
    {"net.example/rack": "r1"},
    {"net.example/rack": "r2", "net.example/block": "b1"},
    {"topology.k8s.aws/network-node-layer-1": "nn-1", "net.example/block": "b2"},
    {"nvidia.com/gpu.clique": "c0ffee.1", "net.example/rack": "r1"},
)


def clique(name: str) -> Manifest:
    topology = node_topology(name, count=2, generation=5)
    topology["spec"]["nvlink"] = {"domain": {"clusterUUID": "c0ffee", "cliqueID": 1}}
    return topology


def broken(name: str) -> Manifest:
    topology = node_topology(name, count=2)
    topology["spec"]["pcie"] = {"levels": ["X PIX", "SYS X"]}
    return topology


def mislabelled(manifest: Manifest) -> Manifest:
    manifest["metadata"]["labels"]["closeknit.dev/index"] = "0"
    return manifest


def every_state() -> dict[tuple[Stream, ObjectKey], list[ClusterObject]]:
    """States that each object of a small cluster may be in."""
    manifests: list[Manifest] = [
        cluster_topology("block", "rack"),
        cluster_topology("rack", fabric={"railIsolated": True}),
        cluster_topology("rack", name="not-used"),
        priority_class("high", 1000),
        priority_class("high", 10, is_default=True),
        priority_class("low", -5, is_default=True),
    ]
    for name in NODES:
        manifests += [node(name, gpus=gpus, labels=labels) for gpus in (2, None) for labels in RACKS]
        manifests += [
            node(name, ready="False"),
            node(name, unschedulable=True, allocatable={"rdma/hca": "3"}),
            node_topology(name, count=2),
            node_topology(
                name, count=2, gpus=[{"index": 1, "state": "Unhealthy"}], heartbeatTime="2026-11-21T12:00:00Z"
            ),
            node_topology(name, count=2, heartbeatTime="2026-11-21T12:10:00Z"),
            node_topology(
                name,
                count=2,
                allocations=[
                    allocation("ml", "notebook", uuids(name, 1)),
                    allocation("team-b", "train-a1-worker-00001", uuids(name, 0)),
                ],
            ),
            clique(name),
            broken(name),
            resource_slice(name, (0, 1)),
            resource_slice(name, (0, 1), count=2),
            resource_slice(name, (0,), part=1, count=2),
            resource_slice(name, (0, 1), generation=2, devices={0: {"allowMultipleAllocations": True}}),
        ]
    for where in (*NODES, None):
        manifests += [
            pod(node=where),
            pod(node=where, requests={"nvidia.com/gpu": "2", "rdma/hca": "1"}),
            worker(index=0, node=where),
            # Named on every node, so that they count wherever the booking is.
            worker(index=0, node=where, gpus=[uuid for name in NODES for uuid in uuids(name, 1)]),
            worker(index=1, node=where, gpus=[uuid for name in NODES for uuid in uuids(name, 1)]),
            worker(index=1, node=where, gpus=uuids("a", 0), requests={"nvidia.com/gpu": "1", "rdma/hca": "1"}),
            worker(index=1, node=where, gpus=uuids("b", 1), phase="Failed"),
            mislabelled(worker(index=1, node=where, gpus=[uuid for name in NODES for uuid in uuids(name, 1)])),
            worker(index=0, node=where, gpus=uuids("b", 0, 1), job_uid="uid-of-another"),
            # Somebody's Pod under a name of ours, and one of the second attempt.
            pod("train-a1-worker-00000", namespace="team-b", node=where),
            worker(index=0, attempt=2, node=where, gpus=uuids("c", 0)),
        ]
    for name in NODES:
        manifests += [
            pod(node=name, requests={"cpu": "4", "rdma/hca": "1"}),
            pod("web", node=name, requests={"cpu": "500m", "example.com/fpga": "1"}),
            told(pod(node=name), ("nvidia.com/gpu", uuids(name, 1))),
        ]
    manifests += [
        device_taint_rule(pool="a", device="gpu-0"),
        device_taint_rule(pool="b", driver="gpu.nvidia.com"),
        device_taint_rule(device="gpu-1"),
        device_taint_rule("more", effect="NoExecute"),
        device_taint_rule("more", pool="c"),
        volume_claim(),
        volume_claim(volume="pv-1"),
        volume(zones=["a"]),
        volume(claim=None, hosts=["a"]),
        storage_class(),
        storage_class(waits=False),
        resource_claim("x", ("a", 0), ("b", 1)),
        resource_claim("x", ("b", 0)),
        resource_claim("x", ("nowhere", 0)),
        resource_claim("train-a1-worker-00000", namespace="team-b", job="train"),
        resource_claim("train-a1-worker-00000", ("c", 1), namespace="team-b", job="train"),
        resource_claim("train-a1-worker-00000", ("c", 1), namespace="team-b"),
        training_job(),
        training_job(placement=booked(("a", [0]), ("b", [0]), nics=["mlx5_0"])),
        training_job(placement=booked(("b", [1]), ("c", [0]), binding="DRA")),
        training_job(placement=booked(("b", [1]), ("c", [0])), attempt=2),
        training_job(placement=booked(("nowhere", [0]), ("c", [0, 1]))),
        training_job(placement=booked(("a", [0]), ("b", [0])), conditions=[condition("Succeeded")]),
        training_job(spec={"gpus": 0}, placement=booked(("a", [1]))),
        training_job("other", placement=booked(("c", [1]))),
        training_job("other", placement=booked(("a", [0, 1]))),
    ]
    states: dict[tuple[Stream, ObjectKey], list[ClusterObject]] = {}
    for manifest in manifests:
        one = change(parsed(manifest))
        assert one.new is not None
        states.setdefault((one.stream, one.key), []).append(one.new)
    return states


STATES = every_state()


def changes_of(slots: Sequence[tuple[Stream, ObjectKey]]) -> st.SearchStrategy[ObjectChange]:
    return st.sampled_from(slots).flatmap(
        lambda slot: st.builds(
            ObjectChange, st.just(slot[0]), st.just(slot[1]), st.none() | st.sampled_from(STATES[slot])
        )
    )


changes = changes_of(sorted(STATES))
moments = st.integers(0, 60).map(lambda minutes: NOON + timedelta(minutes=minutes))
steps = st.lists(st.lists(changes, max_size=4) | moments, max_size=12)
# Most objects are there from the start, so that every change meets what it matters to.
beginnings = st.fixed_dictionaries({slot: st.sampled_from([None, *states]) for slot, states in sorted(STATES.items())})


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(beginnings, steps, st.randoms(use_true_random=False))
def test_a_followed_cluster_equals_one_built_from_what_is_left(
    beginning: dict[tuple[Stream, ObjectKey], ClusterObject | None],
    sequence: Sequence[list[ObjectChange] | datetime],
    random: Random,
) -> None:
    first = [ObjectChange(*slot, value) for slot, value in beginning.items()]
    cluster = Cluster.empty().after(first)
    left: dict[tuple[Stream, ObjectKey], ClusterObject] = {}
    now: datetime | None = None
    for step in (first, *sequence):
        if isinstance(step, datetime):
            now = step
            cluster = cluster.at(now)
            continue
        if step is not first:
            cluster = cluster.after(step)
        for one in step:
            if one.new is None:
                left.pop((one.stream, one.key), None)
            else:
                left[one.stream, one.key] = one.new
    objects = list(left.values())
    random.shuffle(objects)
    built = build(objects)
    if now is not None:
        built = built.at(now)
    assert cluster == built
    assert cluster.forest == built.forest
    for job in (JobKey("team-b", "train"), JobKey("team-b", "other")):
        assert cluster.pods_of(job) == built.pods_of(job)
        assert cluster.claims_of(job) == built.claims_of(job)
    for claim in cluster.claims.values():
        assert cluster.devices.claimed(claim) == built.devices.claimed(claim)


JOBS = (JobKey("team-b", "train"), JobKey("team-b", "other"))
OF_JOBS = (Stream.TRAINING_JOBS, Stream.CHILD_PODS, Stream.RESOURCE_CLAIMS)
of_jobs = changes_of([slot for slot in sorted(STATES) if slot[0] in OF_JOBS])
some_jobs = st.lists(st.sampled_from(JOBS), max_size=2, unique=True)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(beginnings, st.lists(st.lists(changes | of_jobs, max_size=3) | moments, max_size=3), some_jobs, some_jobs)
def test_a_cluster_without_some_jobs_follows_what_happens_to_others(
    beginning: dict[tuple[Stream, ObjectKey], ClusterObject | None],
    sequence: Sequence[list[ObjectChange] | datetime],
    ended: Sequence[JobKey],
    later: Sequence[JobKey],
) -> None:
    before = Cluster.empty().at(NOON).after([ObjectChange(*slot, value) for slot, value in beginning.items()])
    ended = [job for job in ended if job in before.jobs]
    known = released(before, ended)
    now = before
    for step in sequence:
        now = now.at(step) if isinstance(step, datetime) else now.after(step)
    later = [job for job in later if job in now.jobs]
    found = released_like(Future(frozenset(ended), known), now.since(before), later, at_most=8)
    if found is None:
        event("made again")
        return
    event("followed")
    built = released(now, later)
    assert found == built
    assert found.forest == built.forest
    for job in JOBS:
        assert found.pods_of(job) == built.pods_of(job)
        assert found.claims_of(job) == built.claims_of(job)
        assert found.booking_of(job) == built.booking_of(job)
    for name in NODES:
        assert found.takers(name) == built.takers(name)
        assert found.capacity.booked_without_pods(name) == built.capacity.booked_without_pods(name)
    again = [change(parsed(training_job("other", placement=booked(("c", [1])))))]
    assert found.after(again) == built.after(again)


def test_a_job_that_is_gone_and_comes_back_as_it_was_ends_with_it() -> None:
    """Its object is the same, and its booking another."""
    job = JobKey("team-b", "other")
    stored = change(parsed(training_job("other", placement=booked(("a", [0, 1])))))
    before = everything(*map(node, NODES), *map(node_topology, NODES)).at(NOON).after([stored])
    now = before.after([replace(stored, new=None)]).after([stored])
    found = released_like(Future(frozenset([job]), released(before, [job])), now.since(before), [job], at_most=8)
    assert found is not None
    assert found == released(now, [job])
    assert found.booking_of(job) is None


def test_a_claim_that_a_job_gets_meanwhile_ends_with_it() -> None:
    job, name = JobKey("team-b", "train"), "train-a1-worker-00000"
    claim = resource_claim(name, ("b", 1), namespace="team-b", job="train")
    claim["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "gone"}]
    before = everything(
        *map(node, NODES), *map(resource_slice, NODES), training_job(placement=booked(("a", [0]), binding="DRA"))
    ).at(NOON)
    now = before.after([change(parsed(claim))])
    found = released_like(Future(frozenset([job]), released(before, [job])), now.since(before), [job], at_most=8)
    assert found == released(now, [job])


def test_what_only_beats_costs_no_look_at_a_node() -> None:
    before = crowd()
    beaten = before.after([change(parsed(node_topology(name, heartbeatTime=LATER))) for name in ("gpu-1", "gpu-2")])
    followed = before.following(beaten.at(NOON + STALE_AFTER).since(before), (), at_most=0)
    assert followed is not None
    later = NOON + STALE_AFTER + timedelta(seconds=1)
    assert followed.at(later) == beaten.at(later) != before.at(later)
    changed = before.after([change(parsed(node(name, unschedulable=True))) for name in ("gpu-1", "gpu-2")])
    assert before.following(changed.since(before), (), at_most=2) == changed
    assert before.following(changed.since(before), (), at_most=1) is None


def test_an_agent_that_speaks_again_is_heard() -> None:
    silent = crowd().at(NOON + STALE_AFTER + timedelta(minutes=1))
    assert {view.exclusion and view.exclusion.reason for view in silent.nodes.values()} == {ExclusionReason.AGENT_STALE}
    spoke = silent.after([change(parsed(node_topology(name, heartbeatTime=LATER))) for name in ("gpu-1", "gpu-2")])
    assert not any(view.exclusion for view in spoke.nodes.values())
    followed = silent.following(spoke.since(silent), (), at_most=2)
    assert followed == spoke


def test_what_cannot_be_given_out_stays_so_after_changes() -> None:
    before, gone = crowd(), {"gpu-1": uuids("gpu-1", 1, 3), "gpu-2": uuids("gpu-2", 5)}
    freed = [replace(change(before.pods[key]), new=None) for key in before.pods]
    free = change(before.jobs[JobKey("team-b", "train")].model_copy(update={"status": TrainingJobStatus()}))
    after = before.without(gone).after([*freed, free])
    assert after == before.after([*freed, free]).without(gone)
    assert after.nodes["gpu-1"].free == (0, 2, 4, 5, 6, 7)
    assert before.without({"gpu-1": gone["gpu-1"]}).without({"gpu-2": gone["gpu-2"]}).after([free]) == before.after(
        [free]
    ).without(gone)


def test_what_is_supposed_of_nodes_is_not_followed() -> None:
    before = crowd()
    supposed = before.without({"gpu-1": uuids("gpu-1", 3)})
    now = before.after([change(parsed(priority_class("high", 8)))])
    assert before.following(now.since(before), (), at_most=8) == now
    assert supposed.following(now.since(before), (), at_most=8) is None
    assert before.following(now.since(supposed), (), at_most=8) is None
    assert before.following(supposed.with_job(now.jobs[JobKey("team-b", "train")]).since(before), (), at_most=8) is None


@settings(max_examples=100, deadline=None)
@given(st.lists(changes, max_size=40))
def test_batches_of_any_size_end_in_the_same_cluster(sequence: list[ObjectChange]) -> None:
    one_by_one = Cluster.empty()
    for one in sequence:
        one_by_one = one_by_one.after([one])
    assert one_by_one == Cluster.empty().after(sequence)


@settings(max_examples=100, deadline=None)
@given(st.lists(changes, max_size=40))
def test_every_gpu_is_free_or_held_or_not_usable(sequence: list[ObjectChange]) -> None:
    cluster = Cluster.empty().after(sequence)
    for view in cluster.nodes.values():
        everything = {gpu.index for gpu in view.machine.gpus} if view.machine else set()
        assert set(view.free) == everything - view.unusable.keys() - view.holders.keys()
        assert set(view.usable) == everything - view.unusable.keys()
        assert len(view.domains) == len(cluster.levels)
        assert view.domains[-1] is not None


def everything(*manifests: Manifest) -> Cluster:
    return build(parsed(manifest) for manifest in manifests)


def fleet() -> Cluster:
    names = [f"gpu-{number}" for number in range(20)]
    return everything(*map(node, names), *map(node_topology, names))


def test_a_batch_touches_only_the_nodes_that_it_speaks_of() -> None:
    before = fleet()
    after = before.after([change(parsed(pod(node="gpu-3")))])
    assert [name for name in after.nodes if after.nodes[name] is not before.nodes[name]] == ["gpu-3"]


def test_tables_that_did_not_change_are_shared() -> None:
    before = fleet()
    after = before.after([change(parsed(priority_class("high", 7)))])
    assert (after.nodes is before.nodes, after.pods is before.pods, after.jobs is before.jobs) == (True, True, True)


def crowd() -> Cluster:
    """A cluster with something of every kind."""
    return everything(
        cluster_topology("rack"),
        priority_class("high", 7),
        *(node(name) for name in ("gpu-1", "gpu-2")),
        *(node_topology(name, heartbeatTime="2026-11-21T12:00:00Z") for name in ("gpu-1", "gpu-2")),
        resource_slice("gpu-2"),
        training_job(placement=booked(("gpu-1", [0, 1]))),
        training_job("broken", spec={"gpus": 0}),
        worker(node="gpu-1", gpus=uuids("gpu-1", 0, 1), requests={"nvidia.com/gpu": "2"}),
        pod(node="gpu-2"),
        resource_claim("x", ("gpu-2", 0)),
    ).at(NOON)


WORKER = "train-a1-worker-00000"
beat = node_topology("gpu-1", heartbeatTime="2026-11-21T12:05:00Z")
UNSEEN: dict[str, list[ObjectChange]] = {
    "a heartbeat": [change(parsed(beat))],
    "a Node whose kubelet has spoken": [change(parsed(node("gpu-1")))],
    "a Pod seen twice": [change(parsed(pod(node="gpu-2")))],
    "a job that is listed again": [change(parsed(training_job(placement=booked(("gpu-1", [0, 1])))))],
    "a change that is taken back at once": [
        change(parsed(node("gpu-1", ready="False"))),
        ObjectChange(Stream.OTHER_PODS, ("ml", "notebook"), None),
        change(parsed(node("gpu-1"))),
        change(parsed(pod(node="gpu-2"))),
    ],
    "the end of what was never there": [ObjectChange(Stream.NODES, ("", "gpu-9"), None)],
    "a ClusterTopology that does not count": [change(parsed(cluster_topology("block", name="other")))],
}
SEEN: dict[str, ObjectChange] = {
    "a node": change(parsed(node("gpu-1", ready="False"))),
    "a machine": change(parsed(node_topology("gpu-1", gpus=[{"index": 0, "state": "Unhealthy"}]))),
    "levels": change(parsed(cluster_topology("block"))),
    "the fabric": change(parsed(cluster_topology("rack", fabric={"railIsolated": True}))),
    "a job": change(parsed(training_job(placement=booked(("gpu-1", [0, 2]))))),
    "a job whose booking stays": change(
        parsed(training_job(placement=booked(("gpu-1", [0, 1])), conditions=[condition("Running")]))
    ),
    "a job that cannot be read": ObjectChange(Stream.TRAINING_JOBS, ("team-b", "broken"), None),
    "a Pod that is not bound": change(parsed(worker(index=1, node=None))),
    "a claim that holds nothing": change(parsed(resource_claim("y-a1-worker-00000"))),
    "a priority": change(parsed(priority_class("high", 8))),
    "what the kubelet has given to a Pod, as it was booked": change(
        parsed(
            node_topology("gpu-1", allocations=[allocation("team-b", "train-a1-worker-00000", uuids("gpu-1", 0, 1))])
        )
    ),
    "a slice that says nothing of the free GPUs": change(parsed(resource_slice("gpu-2", generation=2))),
}


@pytest.mark.parametrize("batch", UNSEEN.values(), ids=UNSEEN.keys())
def test_a_change_that_no_decision_reads_gives_the_same_cluster(batch: list[ObjectChange]) -> None:
    before = crowd()
    after = before.after(batch)
    assert after.is_same(before)
    assert before.is_same(after)
    assert after == before


@pytest.mark.parametrize("one", SEEN.values(), ids=SEEN.keys())
def test_a_change_that_a_decision_may_read_gives_another_cluster(one: ObjectChange) -> None:
    before = crowd()
    after = before.after([one])
    assert not after.is_same(before)
    assert not before.is_same(after)


def test_time_gives_another_cluster_only_when_an_agent_falls_silent() -> None:
    before = crowd()
    assert before.at(NOON + timedelta(minutes=14)).is_same(before)
    assert not before.at(NOON + timedelta(minutes=16)).is_same(before)


def test_the_children_of_a_job_are_the_very_same_while_none_of_them_changes() -> None:
    job = JobKey("team-b", "train")
    before = crowd().after([change(parsed(resource_claim("train-a1-worker-00000", namespace="team-b", job="train")))])
    after = before.after([change(parsed(pod("new", node="gpu-1"))), change(parsed(worker("other")))])
    assert after.pods is not before.pods
    assert after.pods_of(job) is before.pods_of(job)
    assert after.claims_of(job) is before.claims_of(job)
    failed = after.after([change(parsed(worker(node="gpu-1", phase="Failed")))])
    assert [(pod.name, pod.phase) for pod in failed.pods_of(job)] == [("train-a1-worker-00000", "Failed")]


def test_a_job_whose_booking_stays_touches_no_node() -> None:
    before = fleet().after([change(parsed(training_job(placement=booked(("gpu-1", [0])))))])
    after = before.after(
        [change(parsed(training_job(placement=booked(("gpu-1", [0])), conditions=[condition("Running")])))]
    )
    assert after.nodes is before.nodes
    assert after != before


def test_a_report_of_the_same_machine_keeps_the_very_machine() -> None:
    before = fleet()
    after = before.after([change(parsed(node_topology("gpu-3", gpus=[{"index": 0, "state": "Unhealthy"}])))])
    assert after.nodes["gpu-3"] != before.nodes["gpu-3"]
    assert after.nodes["gpu-3"].machine is before.nodes["gpu-3"].machine


def test_machines_of_a_class_share_what_is_equal_in_them() -> None:
    cluster = everything(*({**node_topology(name), "spec": hgx_h200(name).wire()} for name in ("gpu-1", "gpu-2")))
    one, other = cluster.nodes["gpu-1"].machine, cluster.nodes["gpu-2"].machine
    assert one is not None and other is not None
    assert one != other
    assert one.pcie_levels is other.pcie_levels
    assert one.links is other.links
    assert one.nics is other.nics
    assert (len(one.pcie_levels), len(one.nics) > 0) == (8, True)
    assert not {gpu.uuid for gpu in one.gpus} & {gpu.uuid for gpu in other.gpus}
    assert all(mine.pci_address is theirs.pci_address for mine, theirs in zip(one.gpus, other.gpus, strict=True))


def test_the_last_machine_of_a_class_takes_its_example_along() -> None:
    cluster = fleet()
    gone = cluster.after([ObjectChange(Stream.NODE_TOPOLOGIES, ("", f"gpu-{number}"), None) for number in range(20)])
    back = gone.after([change(parsed(node_topology("gpu-1")))])
    first, later = cluster.nodes["gpu-1"].machine, back.nodes["gpu-1"].machine
    assert first is not None and later is not None
    assert later == first
    assert later.links is not first.links


def test_a_cluster_that_is_given_other_nodes_has_their_forest() -> None:
    before = fleet()
    alone = replace(before, nodes={"gpu-1": before.nodes["gpu-1"]})
    assert alone.forest == everything(node("gpu-1"), node_topology("gpu-1")).forest
    assert alone.forest is alone.forest


def test_a_booking_is_seen_by_the_next_decision() -> None:
    job = parsed(training_job(placement=booked(("gpu-1", [0, 1]))))
    assert isinstance(job, TrainingJob)
    before = fleet()
    after = before.with_job(job)
    assert after.nodes["gpu-1"].free == (2, 3, 4, 5, 6, 7)
    assert before.nodes["gpu-1"].free == (0, 1, 2, 3, 4, 5, 6, 7)
    assert after.jobs[JobKey("team-b", "train")] is job


def test_a_pod_that_has_ended_no_longer_stands_for_its_booking_once_it_is_deleted() -> None:
    """The device plugin then owes the booking its GPUs again."""
    ended = worker(index=0, node="a", phase="Failed", requests={"nvidia.com/gpu": "1"})
    manifests = [node("a", gpus=2), node_topology("a", count=2), training_job(placement=booked(("a", [0]))), ended]
    *others, gone = (change(parsed(manifest)) for manifest in manifests)
    cluster = Cluster.empty().after([*others, gone]).after([ObjectChange(gone.stream, gone.key, None)])
    plugin = cluster.nodes["a"].plugin
    assert plugin is not None
    assert plugin.requested == 1
    assert cluster == build([parsed(manifest) for manifest in manifests[:-1]])


def test_what_a_kubelet_tells_later_of_a_pods_gpus_is_heard() -> None:
    """The Pod runs and holds as many as before; which, stands in its status a moment later."""
    notebook = pod(requests={"nvidia.com/gpu": "2"})
    before = everything(node(), node_topology(), notebook)
    after = before.after([change(parsed(told(notebook, ("nvidia.com/gpu", uuids("gpu-1", 3, 4)))))])
    assert before.nodes["gpu-1"].holders == {}
    assert sorted(after.nodes["gpu-1"].holders) == [3, 4]


def test_the_first_node_ends_the_belief_that_every_node_topology_is_ready() -> None:
    alone = everything(node_topology("gpu-1"), node_topology("gpu-2"))
    assert [view.exclusion for view in alone.nodes.values()] == [None, None]
    joined = alone.after([change(parsed(node("gpu-1")))])
    assert {name: view.exclusion is None for name, view in joined.nodes.items()} == {"gpu-1": True, "gpu-2": False}
    assert joined.after([ObjectChange(Stream.NODES, ("", "gpu-1"), None)]) == alone


def test_the_last_node_leaves_nothing_behind() -> None:
    assert everything(node("gpu-1")).after([ObjectChange(Stream.NODES, ("", "gpu-1"), None)]) == Cluster.empty()


def test_a_pod_moves_no_booking_to_the_gpus_that_it_names() -> None:
    booking = everything(node(), node_topology(), training_job(placement=booked(("gpu-1", [0]))))
    pinned = booking.after([change(parsed(worker(node=None, gpus=uuids("gpu-1", 5), pin="gpu-1")))])
    assert words(pinned.nodes["gpu-1"].holders) == {0: "job team-b/train"}
