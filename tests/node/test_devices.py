"""MIG devices and NICs on real kubelets, by device plugins and by claims: each process finds what was planned."""

from collections.abc import Iterator
from typing import Any

import pytest

from closeknit.agent.discovery.simulated.profile import Faults
from harness.machines import mig_class, nic_class, readings
from harness.node.gpus import pretended, pretended_mig, pretended_nics, uuids
from harness.node.local_node import LocalNode
from node.examples import planned, pod
from node.jobs import Jobs

pytestmark = pytest.mark.nodes

# Machines with NVLink switches, a NIC beside each GPU and MIG: the first GPU of each is cut.
MACHINE, CUT = "hgx-h200", Faults(mig_gpus=(0,))
MIG = "1g.18gb"
# It ends once the test has seen what it asked for: a kubelet tells of what runs alone.
SHOW = """
for local in $(seq 0 $((LOCAL_WORLD_SIZE - 1))); do echo rank $((RANK + local)) of $WORLD_SIZE; done
find /dev -name 'nvidia[0-9]*' -o -name 'nvidia-cap[0-9]*' -o -name 'uverbs*' | sed 's/^/device /'
echo visible ${NVIDIA_VISIBLE_DEVICES:-none}
echo hcas ${NCCL_IB_HCA:-none}
until test -e /reports/$HOSTNAME-may-end; do sleep 0.2; done
"""


@pytest.fixture(scope="module", autouse=True)
def machines(jobs: Jobs) -> Iterator[None]:
    classes = (mig_class(), nic_class())
    jobs.cluster.apply(*classes)
    with jobs.stand.other_machines(MACHINE, "{migGPUs: [0]}"):
        yield
    for each in classes:
        jobs.cluster.delete("deviceclass", each["metadata"]["name"])


@pytest.fixture
def of_both_kinds(jobs: Jobs) -> Iterator[None]:
    """The first node gives its devices by plugins, the second by claims."""
    first, second = jobs.stand.nodes
    first.offer_gpus(whole(first))
    first.offer_gpus(cut(first), "mig")
    second.offer_claims({"gpus": [*whole(second)["gpus"], *cut(second)["gpus"]]})
    jobs.begin("devices")
    yield
    jobs.clear()  # a kubelet ends no Pod whose driver is gone
    first.withdraw_gpus("mig")
    first.withdraw_gpus()
    second.withdraw_claims()


@pytest.fixture
def by_claims(jobs: Jobs) -> Iterator[None]:
    """Both nodes give everything by claims, DRANET's NICs among it."""
    for node in jobs.stand.nodes:
        node.offer_claims(whole(node))
        node.offer_claims(pretended_nics(node.site.name, MACHINE), "nics")
    jobs.begin("nics")
    yield
    jobs.clear()
    for node in jobs.stand.nodes:
        node.withdraw_claims("nics")
        node.withdraw_claims()


@pytest.mark.usefixtures("of_both_kinds")
def test_the_mig_device_that_a_plugin_chose_is_told(jobs: Jobs) -> None:
    node = jobs.stand.nodes[0]
    every = uuids(cut(node))
    node.prefer([every[3]])
    train(jobs, "chosen", gpus=1, gpu={"mig": MIG, "binding": "BestEffort"})
    message = verified(jobs, "chosen")
    assert message == f"its Pod has MIG device {every[3]} ({MIG}), of the planned profile"
    (found,) = jobs.job("chosen")["status"]["placement"]["nodes"]
    assert (found["name"], found["binding"], found["migDevice"]) == (node.site.name, "BestEffort", every[3])
    said = ended(jobs, "chosen")
    assert said["rank"] == ["0 of 1"]
    assert said["device"] == ["/dev/nvidia-caps/nvidia-cap3"]
    assert said["visible"] == [every[3]]


@pytest.mark.usefixtures("of_both_kinds")
def test_a_claim_gives_the_very_mig_device(jobs: Jobs) -> None:
    node = jobs.stand.nodes[1]
    for name in ("one", "other"):
        train(jobs, name, gpus=1, gpu={"mig": MIG, "binding": "DRA"})
    devices = {}
    for name in ("one", "other"):
        message = verified(jobs, name)
        (found,) = jobs.job(name)["status"]["placement"]["nodes"]
        assert (found["name"], found["binding"]) == (node.site.name, "DRA") and found["migDevice"] in message
        devices[name] = uuids(cut(node)).index(found["migDevice"])
    for name, number in devices.items():
        said = ended(jobs, name)
        assert (said["rank"], said["device"]) == (["0 of 1"], [f"/dev/nvidia-caps/nvidia-cap{number}"])
    assert len(set(devices.values())) == 2


@pytest.mark.usefixtures("by_claims")
def test_claims_give_the_planned_gpus_with_the_nics_beside_them(jobs: Jobs) -> None:
    """Over both nodes."""
    train(jobs, "nics", gpus=6, topology={"gpusPerNode": 3}, network={"rdma": "Required"})
    assert verified(jobs, "nics") == "every Pod has the planned GPUs"
    shares = planned(jobs, "nics")
    for index, share in enumerate(shares):
        said = ended(jobs, "nics", index, is_last=index == len(shares) - 1)
        assert said["rank"] == [f"{rank} of 6" for rank in share.ranks]
        nics = [nic.name for nic in readings(share.node, MACHINE).rdma]
        numbers = sorted(nics.index(each.partition(":")[0]) for each in share.nics)
        wanted = [f"/dev/nvidia{gpu}" for gpu in share.gpus] + [f"/dev/infiniband/uverbs{number}" for number in numbers]
        assert len(numbers) == 3 and said["device"] == sorted(wanted)
        assert said["hcas"] == [f"={','.join(sorted(share.nics))}"]


def whole(node: LocalNode) -> dict[str, Any]:
    return pretended(node.site.name, MACHINE, CUT)


def cut(node: LocalNode) -> dict[str, Any]:
    return pretended_mig(node.site.name, MACHINE, CUT, MIG)


def train(jobs: Jobs, name: str, **spec: Any) -> None:
    jobs.train(["sh", "-c", SHOW], name=name, framework="Custom", **spec)


def verified(jobs: Jobs, name: str) -> str:
    """What is told of its devices once they are seen to be those that were planned."""
    jobs.cluster.wait_for(
        lambda: jobs.condition("PlacementVerified", name).get("status") == "True", f"{name}'s devices"
    )
    return str(jobs.condition("PlacementVerified", name)["message"])


def ended(jobs: Jobs, name: str, index: int = 0, *, is_last: bool = True) -> dict[str, list[str]]:
    """What the Pod of a node rank has said, each word's lines sorted; it may end now, and with the last the job."""
    host = pod(name, index)
    jobs.cluster.wait_for(lambda: "hcas" in jobs.log(host), f"{host} to say what it sees")
    said: dict[str, list[str]] = {}
    for line in sorted(jobs.log(host).splitlines()):
        print(host, line)
        word, _, rest = line.partition(" ")
        said.setdefault(word, []).append(rest)
    node = planned(jobs, name)[index].node
    (found,) = (each for each in jobs.stand.nodes if each.site.name == node)
    (found.reports / f"{host}-may-end").touch()
    if is_last:
        jobs.wait_for_end("Succeeded", name)
    return said
