"""CPUs of their own beside the GPUs, as a real kubelet gives them: the policies of its managers are read from its file,
and a trainer that asks for whole CPUs finds itself on those alone. How many are asked for where a template leaves them
open is shown in tests/unit/lifecycle: a machine of two CPUs has none for that."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness.node.trainers import DEBIAN
from node.jobs import Jobs

pytestmark = pytest.mark.nodes

NODE = "node-1"
POLICIES = {"cpuManagerPolicy": "static", "memoryManagerPolicy": "None", "topologyManagerPolicy": "single-numa-node"}
# The half CPU makes a static CPU manager keep a whole one, the first: what is left for trainers is the other.
KUBELET = {**POLICIES, "kubeReserved": {"cpu": "500m"}}
OWN = "1"
SHOW = "grep -h Cpus_allowed_list /proc/self/status; echo threads ${OMP_NUM_THREADS:-none}; exec sleep 600"


@pytest.fixture(scope="module", autouse=True)
def policies(jobs: Jobs) -> Iterator[None]:
    """One node has them, and a device plugin; the other has no GPUs."""
    node = jobs.stand.nodes[0]
    node.change_kubelet(**KUBELET)
    node.offer_gpus(jobs.stand.machine(node))
    yield
    node.withdraw_gpus()
    node.change_kubelet()


def test_a_trainer_has_cpus_of_its_own(jobs: Jobs) -> None:
    """And another, which asks for no whole ones, is kept from them."""
    jobs.begin("cpus")
    jobs.cluster.wait_for(lambda: told(jobs) == POLICIES, "the agent to tell the policies")
    submit(jobs, "own", {"cpu": "1", "memory": "64Mi"})
    submit(jobs, "shared", {"cpu": "400m", "memory": "64Mi"})
    for name in ("own", "shared"):
        jobs.wait_for_state("Running", name)
    assert seen(jobs, "own") == (OWN, "1")
    assert seen(jobs, "shared") == ("0", "1")
    assert warnings(jobs, "own") == []
    assert warnings(jobs, "shared") == [
        f"resources.limits.cpu=0.4: on {NODE} no CPU is its own: a static CPU manager gives whole ones; ask for 1"
    ]
    for name in ("own", "shared"):
        jobs.delete("trainingjob", name)
    jobs.wait_for_nothing()


def submit(jobs: Jobs, name: str, limits: dict[str, str]) -> None:
    trainer = {"name": "trainer", "image": DEBIAN.image, "command": ["sh", "-c", SHOW], "resources": {"limits": limits}}
    jobs.submit(name, gpus=1, template={"spec": {"terminationGracePeriodSeconds": 1, "containers": [trainer]}})


def told(jobs: Jobs) -> dict[str, Any]:
    """The policies that the node's agent has published."""
    found = jobs.stand.topology(NODE)["spec"].get("capabilities", {})
    return {name: found[name] for name in POLICIES if name in found}


def seen(jobs: Jobs, name: str) -> tuple[str, str]:
    """On which CPUs a trainer finds itself, and how many threads it is told to have."""
    pod = f"{name}-a1-worker-00000"
    log = jobs.cluster.wait_for(lambda: jobs.log(pod) if "threads" in jobs.log(pod) else None, f"{pod} to say that")
    cpus, threads = (line.split()[1] for line in log.splitlines())
    return cpus, threads


def warnings(jobs: Jobs, name: str) -> list[str]:
    found: list[str] = jobs.job(name)["status"].get("environment", {}).get("warnings", [])
    return found
