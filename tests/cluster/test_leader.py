"""Two operators, and what happens to the one that leads: killed, told to end, stopped for longer than its Lease."""

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from closeknit.agent.discovery.topology import discover
from closeknit.api.names import API_VERSION
from closeknit.api.nodetopology import Method
from harness.local_cluster import is_running
from harness.machines import node_object, readings
from harness.operator_bed import ON_DRA, ON_PLUGIN
from harness.replicas import Replicas, complaints, replicas

AFTER_DEATH_S, AFTER_RELEASE_S = 20.0, 3.0
STOPPED_S = 20.0  # longer than anybody waits for a Lease
# Enough that its making can be met halfway: 48 creates, 16 at a time.
LARGE = 48
LARGEST = 512  # with --long
serials = itertools.count()


@pytest.fixture(scope="module")
def pair() -> Iterator[Replicas]:
    with replicas() as bed:
        add_machines(bed, LARGE)
        yield bed


def add_machines(bed: Replicas, count: int) -> None:
    """Until there are so many whole nodes of one kind, and the leader has seen them."""
    nodes = (each["metadata"]["name"] for each in bed.cluster.get("nodes")["items"])
    there = sum(1 for name in nodes if name.startswith("more-"))
    bed.cluster.apply(*(each for number in range(there, count) for each in machine(f"more-{number:03}")))
    bed.port = bed.leader()
    bed.cluster.wait_for(lambda: bed.metric("closeknit_gpus", state="free") >= 8 * count, "the nodes to be seen", 60)


def machine(name: str) -> Iterator[dict[str, Any]]:
    """A Node of eight GPUs, and what an agent would publish. Jobs of the others do not ask for its product."""
    yield node_object(name, "dgx-h100", plugin=True)
    spec = discover(readings(name, "dgx-h100"), Method.SIMULATED).spec
    yield {"apiVersion": API_VERSION, "kind": "NodeTopology", "metadata": {"name": name}, "spec": spec.wire()}


def half_made(bed: Replicas, nodes: int = LARGE, **spec: Any) -> None:
    """Submits a large gang, and returns as soon as some of its Pods are there."""
    bed.submit("train-0", gpus=8 * nodes, gpu={"products": ["NVIDIA-H100-80GB-HBM3"]}, **spec)
    until = time.monotonic() + 30
    while not bed.names("pods"):  # without a pause
        assert time.monotonic() < until, "no Pod is made"


@pytest.fixture
def bed(pair: Replicas) -> Iterator[Replicas]:
    pair.begin(f"leader-{next(serials)}")
    yield pair
    pair.cluster.delete("trainingjobs", namespace=pair.namespace)
    pair.cluster.delete("namespace", pair.namespace)
    pair.cluster.wait_for(lambda: not pair.live_pods(), "the story's Pods to be gone", 120)


def is_well(bed: Replicas, jobs: int) -> None:
    """All gangs run, and nothing that was written for them is wrong."""
    for number in range(jobs):
        bed.wait_for_state("Running", f"train-{number}")
    bed.submit("last", gpus=8000)  # what is written for it is logged after all that was written before
    bed.wait_for_reason("InsufficientGPUs", "last")
    bed.cluster.wait_for(lambda: any(event.name.startswith("last.") for event in bed.writes()), "the log of its Event")
    bed.delete("trainingjob", "last")
    wanted = [job for job in bed.all("trainingjobs") if job["metadata"]["name"] != "last"]
    assert complaints(bed.writes(), wanted, bed.all("pods")) == []


def test_one_leads_and_the_other_is_ready_to(bed: Replicas) -> None:
    leader = bed.leader()
    (standby,) = (port for port in bed.others if port != leader)
    bed.submit("train-0", **ON_PLUGIN)
    is_well(bed, 1)
    bed.port = standby
    assert bed.get("/healthz") == bed.get("/readyz") == "ok"
    assert not bed.leads(standby)
    assert bed.metric("closeknit_placement_attempts_total") == 0
    assert bed.metric("closeknit_jobs", state="Running") == 0  # or a sum over replicas would count it twice
    lease, job = bed.lease(), bed.job("train-0")
    assert (lease["leaseDurationSeconds"], lease["leaseTransitions"]) == (15, job["status"]["epoch"])


@pytest.mark.parametrize(
    ("how", "limit_s"), [(signal.SIGTERM, AFTER_RELEASE_S), (signal.SIGKILL, AFTER_DEATH_S)], ids=["told", "killed"]
)
def test_the_next_one_leads_soon_makes_what_is_half_made_and_leaves_alone_what_runs(
    bed: Replicas, how: signal.Signals, limit_s: float
) -> None:
    bed.submit("train-1", **ON_DRA)
    bed.wait_for_state("Running", "train-1")
    leader, epoch, began = bed.leader(), bed.lease()["leaseTransitions"], datetime.now(UTC)
    half_made(bed)
    took_s = bed.takeover_s(leader, how, "waits")
    assert took_s < limit_s
    assert bed.lease()["leaseTransitions"] == epoch + 1
    is_well(bed, 2)
    assert not [event for event in bed.writes(since=began) if event.name.startswith("train-1-a1")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """More of the same with --long."""
    for name, few, many in (("stop", 1, 10), ("moment", 1, 30)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, range(many if metafunc.config.getoption("--long") else few))


def test_a_stopped_leader_that_wakes_writes_nothing_more(bed: Replicas, stop: int) -> None:
    """It is stopped in the midst of making a gang."""
    leader = bed.leader()
    pid = bed.others[leader]
    half_made(bed)
    time.sleep(0.02 * stop)
    os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    bed.submit("train-1", **ON_DRA)
    is_well(bed, 2)
    assert time.monotonic() - stopped < AFTER_DEATH_S + 5
    time.sleep(max(0.0, STOPPED_S - (time.monotonic() - stopped)))
    written = len(bed.writes())
    os.kill(pid, signal.SIGCONT)
    bed.cluster.wait_for(lambda: not is_running(pid), "the old leader to end")
    bed.replace(leader)
    time.sleep(1)
    assert len(bed.writes()) == written
    is_well(bed, 2)


def test_gangs_come_through_whatever_happens_to_their_leader(bed: Replicas, moment: int) -> None:
    """At a random moment of gangs' lives: one is made, one has a Pod deleted, one ends and makes room."""
    chance = random.Random(moment)  # noqa: S311 - to be repeated
    bed.submit("train-0", **ON_PLUGIN)
    bed.submit("train-1", **ON_DRA)
    for name in ("train-0", "train-1"):
        bed.wait_for_state("Running", name)
    bed.submit("train-2", **ON_PLUGIN)
    bed.delete("pod", "train-1-a1-worker-00000")
    for pod in ("train-0-a1-worker-00000", "train-0-a1-worker-00001"):
        bed.finish(pod, "succeed")
    time.sleep(chance.uniform(0.0, 0.6))
    how = (signal.SIGTERM, signal.SIGKILL)[moment % 2]
    port, _ = bed.hurt_leader(how)
    bed.replace(port)
    bed.wait_for_state("Succeeded", "train-0")
    bed.delete("trainingjob", "train-0")
    for name in ("train-1", "train-2"):
        bed.wait_for_state("Running", name)
    bed.submit("last", gpus=8000)
    bed.wait_for_reason("InsufficientGPUs", "last")
    bed.cluster.wait_for(lambda: any(event.name == "last" for event in bed.writes()), "the audit log")
    jobs = [each for each in bed.all("trainingjobs") if each["metadata"]["name"] in {"train-1", "train-2"}]
    pods = [each for each in bed.all("pods") if each["metadata"]["labels"]["closeknit.dev/job"] != "train-0"]
    assert complaints(bed.writes(), jobs, pods) == []


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("phase", ["starts", "restarts", "runs", "ends"])
def test_a_gang_of_512_comes_through_whatever_happens_to_its_leader(
    bed: Replicas, phase: str, how: signal.Signals
) -> None:
    """At a random moment of its life: killed, or stopped for longer than its Lease."""
    chance = random.Random(f"{phase} {how.name}")  # noqa: S311 - to be repeated
    add_machines(bed, LARGEST)
    half_made(bed, LARGEST, restart={"limit": 3})
    if phase != "starts":
        wait_for_all(bed, "Running")
    attempt = bed.job("train-0")["status"].get("attempt", 1)
    match phase:
        case "starts":
            time.sleep(chance.uniform(0.0, 1.0))
        case "runs":
            time.sleep(chance.uniform(0.0, 2.0))
        case "restarts":
            bed.finish(chance.choice(bed.live_pods()), "fail")
            time.sleep(chance.uniform(0.0, 10.0))
        case "ends":
            exits = ("--all", "harness.closeknit.dev/exit=succeed", f"--namespace={bed.namespace}")
            bed.cluster.kubectl("annotate", "pods", *exits)
    port, pid = bed.hurt_leader(how)
    if how is signal.SIGSTOP:
        time.sleep(STOPPED_S)
        os.kill(pid, signal.SIGCONT)
    bed.replace(port)
    wait_for_all(bed, "Succeeded" if phase == "ends" else "Running", attempt + (phase == "restarts"))
    bed.submit("last", gpus=8 * 2 * LARGEST)
    bed.cluster.wait_for(lambda: bed.job("last")["status"].get("pending"), "a word to the last", 60)
    bed.cluster.wait_for(lambda: any(event.name == "last" for event in bed.writes()), "the audit log")
    bed.delete("trainingjob", "last")
    jobs = [each for each in bed.all("trainingjobs") if each["metadata"]["name"] == "train-0" and phase != "ends"]
    assert complaints(bed.writes(), jobs, bed.all("pods")) == []


def wait_for_all(bed: Replicas, state: str, attempt: int = 1) -> None:
    """Until a large gang is in this state, in this attempt or a later one: kwok may renew the Leases of 512 nodes late,
    and a gang that is being made goes without a silent node."""

    def is_so() -> bool:
        status = bed.job("train-0")["status"]
        return status.get("state") == state and (status.get("attempt") or 0) >= attempt

    bed.cluster.wait_for(is_so, f"the gang to be {state} in attempt {attempt}", 240)
