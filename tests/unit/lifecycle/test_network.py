"""What a job is told of the network between its nodes, and what its Pods get for it."""

from typing import Any

import pytest

from closeknit.api.wire import Condition
from closeknit.lifecycle.answers import Answers
from scenarios.manifests import node, node_topology, resource_slice, training_job
from scenarios.stories import WHOLE
from scenarios.story import Story


def nics(transport: str, count: int = 2, state: str = "Active") -> list[dict[str, Any]]:
    return [{"name": f"{transport.lower()}-{port}", "transport": transport, "state": state} for port in range(count)]


def machine(
    name: str, ports: list[dict[str, Any]], *, domain: str | None = None, **allocatable: str
) -> list[dict[str, Any]]:
    """A node of eight GPUs with these NICs; `allocatable` is what its device plugins offer, under rdma/ where the name
    has no slash."""
    topology = node_topology(name)
    topology["spec"]["nics"] = ports
    if domain:
        topology["spec"]["nvlink"] = {"domain": {"clusterUUID": domain, "cliqueID": 1}}
    offers = {resource if "/" in resource else f"rdma/{resource}": amount for resource, amount in allocatable.items()}
    return [node(name, gpus=None, allocatable=offers), topology, resource_slice(name, range(8))]


def job(rdma: str = "Preferred", **container: object) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i", **container}]}}
    return training_job(spec={**WHOLE, "network": {"rdma": rdma}, "template": template})


def environment(story: Story) -> dict[str, str]:
    """Of the Pod of node rank 0."""
    pods = [manifest for (kind, _, name), manifest in story.objects.items() if kind == "Pod" and "00000" in name]
    return {entry["name"]: entry["value"] for entry in pods[0]["spec"]["containers"][0]["env"]}


def degraded(story: Story) -> Condition | None:
    return next((condition for condition in story.status().conditions if condition.type == "Degraded"), None)


ADVICE = (
    "; have a device plugin offer them as rdma/..., ask for them in the template by the name that they have, "
    "or set network.rdma: Disabled"
)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        pytest.param(
            [*machine("gpu-1", nics("EFA")), *machine("gpu-2", nics("EFA"))],
            "gpu-1, gpu-2: 2 EFA NICs, which no resource offers to Pods",
            id="EFA",
        ),
        pytest.param(
            [*machine("gpu-1", nics("InfiniBand")), *machine("gpu-2", nics("InfiniBand"), hca="8")],
            "gpu-1: 2 InfiniBand NICs, which no resource offers to Pods",
            id="offered on one of two nodes",
        ),
        pytest.param(
            [*machine("gpu-1", nics("RoCE") + nics("EFA", 1)), *machine("gpu-2", nics("RoCE", 1))],
            "gpu-1: 2 RoCE and 1 EFA NICs, which no resource offers to Pods; "
            "gpu-2: 1 RoCE NICs, which no resource offers to Pods",
            id="nodes that differ",
        ),
    ],
)
def test_nics_that_pods_do_not_get_are_told_and_nothing_is_forced(nodes: list[dict[str, Any]], message: str) -> None:
    story = Story(*nodes, job())
    story.settle()
    assert "NCCL_NET" not in environment(story)
    found = degraded(story)
    assert found is not None
    assert (found.status, found.reason) == ("True", "RDMANotOffered")
    assert found.message == f"its Pods get no RDMA NIC, so that NCCL may fall back to TCP: {message}{ADVICE}"


def test_what_the_template_asks_for_itself_is_named() -> None:
    asked = job(resources={"limits": {"example.com/vf": "2", "cpu": "8"}})
    offered = {"example.com/vf": "2"}
    story = Story(*machine("gpu-1", nics("RoCE"), **offered), *machine("gpu-2", nics("RoCE"), **offered), asked)
    story.settle()
    found = degraded(story)
    assert found is not None
    assert (found.status, found.message) == (
        "True",
        "RDMA NICs come into its Pods only by example.com/vf, which its template asks for: "
        "gpu-1, gpu-2: 2 RoCE NICs, which no resource offers to Pods",
    )


@pytest.mark.parametrize(
    ("nodes", "rdma", "net"),
    [
        pytest.param([*machine("gpu-1", []), *machine("gpu-2", [])], "Preferred", "Socket", id="no NICs"),
        pytest.param(
            [*machine("gpu-1", nics("EFA", state="Down")), *machine("gpu-2", [])],
            "Preferred",
            "Socket",
            id="NICs that are down",
        ),
        pytest.param(
            [*machine("gpu-1", nics("iWARP")), *machine("gpu-2", nics("iWARP"))], "Preferred", "Socket", id="iWARP"
        ),
        pytest.param(
            [*machine("gpu-1", nics("EFA")), *machine("gpu-2", nics("EFA"))], "Disabled", "Socket", id="not wanted"
        ),
        pytest.param(
            [*machine("gpu-1", nics("RoCE"), hca="8"), *machine("gpu-2", nics("RoCE"), hca="8")],
            "Preferred",
            "IB",
            id="handed out",
        ),
    ],
)
def test_where_the_net_is_known_it_is_named_and_nothing_is_missing(
    nodes: list[dict[str, Any]], rdma: str, net: str
) -> None:
    story = Story(*nodes, job(rdma))
    story.settle()
    assert environment(story)["NCCL_NET"] == net
    assert degraded(story) is None


def test_an_attempt_that_gets_its_nics_takes_the_word_back() -> None:
    story = Story(*machine("gpu-1", nics("RoCE")), *machine("gpu-2", nics("RoCE")), job())
    story.settle()
    assert story.status().attempt == 1
    for manifest in (*machine("gpu-1", nics("RoCE"), hca="8"), *machine("gpu-2", nics("RoCE"), hca="8")):
        story.add(manifest)
    story.edit_job(suspend=True)
    for _ in range(3):
        story.settle()
        for name in story.pods():
            story.remove_pod(name)
    story.edit_job(suspend=False)
    story.settle()
    found = degraded(story)
    assert found is not None
    assert (story.status().attempt, found.status, found.reason) == (2, "False", "AsPlanned")


def test_nvlink_between_nodes_is_kept_out_by_what_the_machine_or_a_label_says() -> None:
    labelled = machine("gpu-2", nics("RoCE"))
    labelled[0]["metadata"]["labels"]["nvidia.com/gpu.clique"] = "c0ffee.1"
    story = Story(*machine("gpu-1", nics("RoCE"), domain="c0ffee"), *labelled, job())
    story.settle()
    assert environment(story)["NCCL_MNNVL_ENABLE"] == "0"


def test_a_gang_without_rdma_is_told_of_its_nics_and_not_of_a_capability_that_it_never_asked_for() -> None:
    story = Story(*machine("gpu-1", nics("RoCE")), *machine("gpu-2", nics("RoCE")), job())
    story.answers["uid-of-train"] = Answers(ipc_lock_refused=True)  # by an attempt before, which used RDMA
    story.settle()
    story.run_all()
    story.settle()
    found = degraded(story)
    assert found is not None
    assert found.reason == "RDMANotOffered"
