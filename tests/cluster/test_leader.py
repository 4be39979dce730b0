"""Two operators, and what happens to the one that leads: killed, told to end, stopped for longer than its Lease."""

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator

import pytest

from harness.local_cluster import is_running
from harness.operator_bed import ON_DRA, ON_PLUGIN
from harness.replicas import Replicas, complaints, replicas

AFTER_DEATH_S, AFTER_RELEASE_S = 20.0, 3.0
STOPPED_S = 20.0  # longer than anybody waits for a Lease
serials = itertools.count()


@pytest.fixture(scope="module")
def pair() -> Iterator[Replicas]:
    with replicas() as bed:
        yield bed


@pytest.fixture
def bed(pair: Replicas) -> Iterator[Replicas]:
    pair.begin(f"leader-{next(serials)}")
    yield pair
    pair.cluster.delete("trainingjobs", namespace=pair.namespace)
    pair.cluster.delete("namespace", pair.namespace)
    pair.cluster.wait_for(lambda: not pair.live_pods(), "the story's Pods to be gone")


def is_well(bed: Replicas, jobs: int) -> None:
    """All gangs run, and nothing that was written for them is wrong."""
    for number in range(jobs):
        bed.wait_for_state("Running", f"train-{number}")
    bed.submit("last", gpus=8000)  # what is written for it is logged after all that was written before
    bed.wait_for_reason("InsufficientGPUs", "last")
    bed.cluster.wait_for(lambda: any(event.name == "last" for event in bed.writes()), "the audit log")
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


@pytest.mark.alone
@pytest.mark.parametrize(
    ("how", "limit_s"), [(signal.SIGTERM, AFTER_RELEASE_S), (signal.SIGKILL, AFTER_DEATH_S)], ids=["told", "killed"]
)
def test_the_next_one_leads_soon_and_leaves_running_gangs_alone(
    bed: Replicas, how: signal.Signals, limit_s: float
) -> None:
    bed.submit("train-0", **ON_PLUGIN)
    bed.submit("train-1", **ON_DRA)
    is_well(bed, 2)
    epoch, written = bed.lease()["leaseTransitions"], len(bed.writes())
    took_s = bed.takeover_s(how, "waits")
    assert took_s < limit_s
    assert bed.lease()["leaseTransitions"] == epoch + 1
    is_well(bed, 2)
    assert {event.name.partition(".")[0] for event in bed.writes()[written:]} <= {"waits", "last"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """More of the same with --long."""
    for name, few, many in (("stop", 1, 10), ("moment", 2, 30)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, range(many if metafunc.config.getoption("--long") else few))


def test_a_stopped_leader_that_wakes_writes_nothing_more(bed: Replicas, stop: int) -> None:
    """It is stopped in the midst of making a gang."""
    chance = random.Random(stop)  # noqa: S311 - to be repeated
    bed.submit("train-0", **ON_PLUGIN)
    time.sleep(chance.uniform(0.0, 0.3))
    port, pid = bed.hurt_leader(signal.SIGSTOP)
    stopped = time.monotonic()
    bed.submit("train-1", **ON_DRA)
    is_well(bed, 2)
    assert time.monotonic() - stopped < AFTER_DEATH_S + 5
    time.sleep(max(0.0, STOPPED_S - (time.monotonic() - stopped)))
    written = len(bed.writes())
    os.kill(pid, signal.SIGCONT)
    bed.cluster.wait_for(lambda: not is_running(pid), "the old leader to end")
    bed.replace(port)
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
    how = (signal.SIGKILL, signal.SIGTERM)[moment % 2]
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
