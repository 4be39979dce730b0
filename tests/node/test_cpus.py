"""CPUs of their own beside the GPUs, as a real kubelet gives them: the policies of its managers are read from its file,
and a trainer that asks for whole CPUs finds itself on those alone. How many are asked for where a template leaves them
open is shown in tests/unit/lifecycle: a machine of two CPUs has none for that."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness.node.gpus import uuids
from harness.node.trainers import DEBIAN
from node.jobs import Jobs

pytestmark = pytest.mark.nodes

NODE = "node-1"
POLICIES = {"cpuManagerPolicy": "static", "memoryManagerPolicy": "None", "topologyManagerPolicy": "single-numa-node"}
# The half CPU makes a static CPU manager keep a whole one, the first: what is left for trainers is the second.
KUBELET = {**POLICIES, "kubeReserved": {"cpu": "500m"}}
OWN = "1"
WHOLE = {"cpu": "1", "memory": "64Mi"}
SHOW = "ls /dev/nvidia*; grep Cpus_allowed_list /proc/self/status; echo threads $OMP_NUM_THREADS; exec sleep 600"


@pytest.fixture(scope="module", autouse=True)
def policies(jobs: Jobs) -> Iterator[None]:
    """One node has them, two NUMA nodes with a CPU and four GPUs each, and a device plugin; the other has no GPUs."""
    node = jobs.stand.nodes[0]
    node.change_kubelet(has_numa=True, **KUBELET)
    node.offer_gpus(jobs.stand.machine(node))
    yield
    node.withdraw_gpus()
    node.change_kubelet()


def test_a_trainer_has_cpus_of_its_own(jobs: Jobs) -> None:
    """And another, which asks for no whole ones, is kept from them."""
    jobs.begin("cpus")
    jobs.cluster.wait_for(lambda: told(jobs) == POLICIES, "the agent to tell the policies")
    submit(jobs, "own", WHOLE)
    submit(jobs, "shared", {"cpu": "400m", "memory": "64Mi"})
    for name in ("own", "shared"):
        jobs.wait_for_state("Running", name)
    assert seen(jobs, "own") == (OWN, "1")
    assert seen(jobs, "shared") == ("0", "1")
    assert warnings(jobs, "own") == []
    assert warnings(jobs, "shared") == [
        f"resources.limits.cpu=0.4: on {NODE} no CPU is its own: a static CPU manager gives whole ones; ask for 1"
    ]
    clean(jobs, "own", "shared")


def test_cpus_and_gpus_are_of_one_numa_node(jobs: Jobs) -> None:
    """The CPU that is left is on the second: the kubelet gives GPUs from there, whatever the plugin would rather give,
    and where all GPUs are asked for it refuses, for they are on both."""
    jobs.begin("numa")
    node = jobs.stand.nodes[0]
    node.prefer(uuids(jobs.stand.machine(node))[:4])
    submit(jobs, "own", WHOLE, gpus=4, gpu={"binding": "BestEffort"})
    jobs.wait_for_state("Running", "own")
    assert seen(jobs, "own") == (OWN, "1")
    shown = sorted(line for line in jobs.log("own-a1-worker-00000").splitlines() if line.startswith("/dev"))
    assert shown == [f"/dev/nvidia{gpu}" for gpu in range(4, 8)]
    told = "other GPUs than planned: node-1 was to give 0,1,2,3 and gave 4,5,6,7"
    jobs.cluster.wait_for(lambda: jobs.condition("PlacementVerified", "own").get("message") == told, "that to be told")
    clean(jobs, "own")

    submit(jobs, "all", WHOLE, gpus=8)
    (ended,) = jobs.cluster.wait_for(lambda: jobs.job("all")["status"].get("attempts"), "the kubelet to refuse")
    print(ended["message"])
    assert (ended["reason"], ended["charged"]) == ("NodeRefused", False)
    assert "TopologyAffinityError" in ended["message"]
    clean(jobs, "all")


def clean(jobs: Jobs, *names: str) -> None:
    for name in names:
        jobs.delete("trainingjob", name)
    jobs.wait_for_nothing()


def submit(jobs: Jobs, name: str, limits: dict[str, str], gpus: int = 1, **spec: Any) -> None:
    trainer = {"name": "trainer", "image": DEBIAN.image, "command": ["sh", "-c", SHOW], "resources": {"limits": limits}}
    jobs.submit(
        name, gpus=gpus, **spec, template={"spec": {"terminationGracePeriodSeconds": 1, "containers": [trainer]}}
    )


def told(jobs: Jobs) -> dict[str, Any]:
    """The policies that the node's agent has published."""
    found = jobs.stand.topology(NODE)["spec"].get("capabilities", {})
    return {name: found[name] for name in POLICIES if name in found}


def seen(jobs: Jobs, name: str) -> tuple[str, str]:
    """On which CPUs a trainer finds itself, and how many threads it is told to have."""
    pod = f"{name}-a1-worker-00000"
    log = jobs.cluster.wait_for(lambda: jobs.log(pod) if "threads" in jobs.log(pod) else None, f"{pod} to say that")
    cpus, threads = (line.split()[1] for line in log.splitlines() if not line.startswith("/dev"))
    return cpus, threads


def warnings(jobs: Jobs, name: str) -> list[str]:
    found: list[str] = jobs.job(name)["status"].get("environment", {}).get("warnings", [])
    return found
