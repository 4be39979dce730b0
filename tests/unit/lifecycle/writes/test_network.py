"""What a job is told of the network between its nodes, and what its Pods get for it."""

from typing import Any

import pytest

from closeknit.lifecycle.status.degraded import FIXED
from closeknit.lifecycle.writes.answers import Answers
from scenarios.manifests import pod, training_job
from scenarios.networks import degraded, environment, job, machine, nics, pods, two
from scenarios.story import Story

ADVICE = (
    "; have a device plugin offer them as rdma/..., ask for them in the template by the name that they have, "
    f"or set network.rdma: Disabled; {FIXED}"
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
            "gpu-2: 1 RoCE NIC, which no resource offers to Pods",
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


@pytest.mark.parametrize(
    ("ports", "offers", "resources", "net"),
    [
        pytest.param(
            nics("EFA", 4),
            {"vpc.amazonaws.com/efa": "4"},
            {"vpc.amazonaws.com/efa": "4"},
            "AWS Libfabric",
            id="EFA: one for each adapter",
        ),
        pytest.param(
            nics("RoCE", 2), {"aliyun/erdma": "8"}, {"aliyun/erdma": "1"}, "IB", id="eRDMA: one stands for all"
        ),
        pytest.param(
            nics("RoCE", 2),
            {"networking.gke.io.networks/rdma-0": "1", "networking.gke.io.networks/rdma-1": "1",
             "networking.gke.io.networks/rdma-1.IP": "1", "networking.gke.io.networks/gvnic-1": "1"},
            {"networking.gke.io.networks/rdma-0": "1", "networking.gke.io.networks/rdma-1": "1"},
            "IB",
            id="GKE: one of each network",
        ),
    ],
)  # fmt: skip
def test_nics_come_into_pods_as_their_nodes_offer_them(
    ports: list[dict[str, Any]], offers: dict[str, str], resources: dict[str, str], net: str
) -> None:
    story = Story(*two(ports, **offers), job("Required"))
    story.settle()
    assert environment(story)["NCCL_NET"] == net
    for made in pods(story):
        limits = made["spec"]["containers"][0]["resources"]["limits"]
        assert {name: amount for name, amount in limits.items() if name in offers} == resources
        assert made["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert degraded(story) is None


def test_gke_networks_become_interfaces_and_the_vendors_script_has_the_word() -> None:
    offers = {f"networking.gke.io.networks/rdma-{number}": "1" for number in range(2)}
    story = Story(*two(nics("RoCE"), labels={"node.kubernetes.io/instance-type": "a3-ultragpu-8g"}, **offers), job())
    story.settle()
    assert "NCCL_NET" not in environment(story)
    assert pods(story)[0]["metadata"]["annotations"]["networking.gke.io/interfaces"] == (
        '[{"interfaceName":"eth0","network":"default"},{"interfaceName":"eth2","network":"rdma-0"},'
        '{"interfaceName":"eth3","network":"rdma-1"}]'
    )


@pytest.mark.parametrize(
    "kind",
    [
        "a3-highgpu-8g", "a3-edgegpu-8g-nolssd", "a3-megagpu-8g", "a3-ultragpu-8g", "a4-highgpu-8g",
        "a4x-highgpu-4g-nolssd", "a4x-maxgpu-4g-metal", "a5x-anygpu-4g",
    ],
)  # fmt: skip
def test_the_vendors_script_has_the_word_on_every_gpudirect_machine_of_google(kind: str) -> None:
    story = Story(*two(nics("RoCE"), labels={"node.kubernetes.io/instance-type": kind}, hca="8"), job())
    story.settle()
    assert not {"NCCL_NET", "NCCL_IB_HCA", "NCCL_CROSS_NIC"} & environment(story).keys()


@pytest.mark.parametrize("kind", ["a2-ultragpu-8g", "g4-standard-384", "n2-standard-64", "p5.48xlarge", ""])
def test_other_machines_have_no_script_of_their_vendor(kind: str) -> None:
    story = Story(*two(nics("RoCE"), labels={"node.kubernetes.io/instance-type": kind}, hca="8"), job())
    story.settle()
    assert environment(story)["NCCL_NET"] == "IB"


@pytest.mark.parametrize("kind", ["Standard_ND96isr_H100_v5", "standard_nd128isr_gb200_v6"])
def test_azures_machines_are_known_however_their_name_is_spelt(kind: str) -> None:
    story = Story(*two(nics("InfiniBand"), labels={"node.kubernetes.io/instance-type": kind}, hca="8"), job())
    story.settle()
    assert environment(story)["NCCL_IB_PCI_RELAXED_ORDERING"] == "1"


@pytest.mark.parametrize(("c2c", "is_warned"), [({"links": 10}, False), (None, True)], ids=["C2C", "PCIe alone"])
def test_gdr_over_sockets_is_harmful_only_where_gpus_have_no_c2c(c2c: dict[str, int] | None, is_warned: bool) -> None:
    nodes = two(nics("InfiniBand"), hca="8")
    for node in nodes:
        for gpu in node["spec"].get("gpus", ()):
            gpu.update({"c2c": c2c} if c2c else {})
    story = Story(*nodes, job(env=[{"name": "NCCL_NET_GDR_LEVEL", "value": "SYS"}]))
    story.settle()
    told = story.status().environment
    warnings = told.warnings if told else []
    assert any("NCCL_NET_GDR_LEVEL" in line for line in warnings) is is_warned


def test_efa_adapters_that_others_hold_are_not_promised() -> None:
    taken = [pod_of_others(name, "vpc.amazonaws.com/efa", "1") for name in ("gpu-1", "gpu-2")]
    story = Story(*two(nics("EFA", 4), **{"vpc.amazonaws.com/efa": "4"}), *taken, job("Required"))
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == "RDMAUnavailable"


def pod_of_others(on: str, resource: str, amount: str) -> dict[str, Any]:
    return pod(f"other-{on}", node=on, requests={resource: amount})


MIXED = {
    "NICs on one node alone": (
        [*machine("gpu-1", []), *machine("gpu-2", nics("RoCE"), hca="8")],
        "not every node has a NIC that NCCL could use: gpu-1: no RDMA NIC; gpu-2: 2 RoCE NICs",
    ),
    "transports that differ": (
        [*machine("gpu-1", nics("InfiniBand"), hca="8"), *machine("gpu-2", nics("RoCE"), hca="8")],
        "the nodes' NICs have no transport in common: gpu-1: 2 InfiniBand NICs; gpu-2: 2 RoCE NICs",
    ),
    "ways into Pods that differ": (
        [*machine("gpu-1", nics("RoCE"), hca="8"),
         *machine("gpu-2", nics("RoCE"), **{"networking.gke.io.networks/rdma-0": "1"})],
        "the nodes' NICs come into Pods in different ways: gpu-1: 2 RoCE NICs by Shared; gpu-2: 2 RoCE NICs by GKE",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "message"), MIXED.values(), ids=MIXED.keys())
def test_over_mixed_fabrics_preferred_goes_by_sockets_everywhere_and_says_so(
    nodes: list[dict[str, Any]], message: str
) -> None:
    story = Story(*nodes, job())
    story.settle()
    for made in pods(story):
        env = {entry["name"]: entry["value"] for entry in made["spec"]["containers"][0]["env"]}
        assert env["NCCL_NET"] == "Socket"
        assert "NCCL_IB_HCA" not in env
    found = degraded(story)
    assert found is not None
    assert (found.status, found.reason) == ("True", "OverSockets")
    assert found.message == (
        f"all ranks talk over sockets, because {message}; set network.rdma: Required to wait for nodes that have them "
        f"alike; {FIXED}"
    )


@pytest.mark.parametrize("nodes", [nodes for nodes, _ in MIXED.values()], ids=MIXED.keys())
def test_over_mixed_fabrics_required_is_refused(nodes: list[dict[str, Any]]) -> None:
    story = Story(*nodes, job("Required"))
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == "RDMAUnavailable"
    assert "network.rdma: Preferred" in pending.message
    assert [notice.reason for notice in story.notices] == ["RDMAUnavailable"]
    assert not [kind for kind, *_ in story.objects if kind in ("Pod", "Service", "ResourceClaim")]


def test_egress_bandwidth_is_an_annotation_of_every_pod_and_the_templates_own_wins() -> None:
    asked = job()
    asked["spec"]["network"] = {"egressBandwidth": "10G"}
    story = Story(*two([]), asked)
    story.settle()
    assert {made["metadata"]["annotations"]["kubernetes.io/egress-bandwidth"] for made in pods(story)} == {"10G"}
    own = job()
    own["spec"]["network"] = {"egressBandwidth": "10G"}
    own["spec"]["template"]["metadata"] = {"annotations": {"kubernetes.io/egress-bandwidth": "1G"}}
    story = Story(*two([]), own)
    story.settle()
    assert {made["metadata"]["annotations"]["kubernetes.io/egress-bandwidth"] for made in pods(story)} == {"1G"}


@pytest.mark.parametrize(
    ("told", "rdma", "env", "names"),
    [
        ("Low", "Required", {}, ["NCCL_TOPO_FILE"]),
        ("High", "Required", {}, []),
        ("Low", "Disabled", {}, []),
        ("Low", "Required", {"NCCL_TOPO_FILE": "/topology.xml"}, []),
    ],
)
def test_a_machine_that_hides_its_levels_is_told(told: str, rdma: str, env: dict[str, str], names: list[str]) -> None:
    """Flat PCI, as virtual machines show it."""
    nodes = two(nics("RoCE"), hca="8")
    for topology in (nodes[1], nodes[4]):
        topology["spec"]["source"]["pcieConfidence"] = told
    story = Story(*nodes, job(rdma, env=[{"name": name, "value": value} for name, value in env.items()]))
    story.settle()
    found = story.status().environment
    assert [each.partition(":")[0] for each in (found.warnings if found else [])] == names
    assert degraded(story) is None


def test_harmful_settings_are_told_in_the_status() -> None:
    story = Story(*two([]), job(env=[{"name": "NCCL_ALGO", "value": "Ring"}, {"name": "NCCL_NET", "value": "IB"}]))
    story.settle()
    found = story.status().environment
    assert found is not None
    assert found.skipped == ["NCCL_NET"]
    assert [warning.partition(":")[0] for warning in found.warnings] == ["NCCL_ALGO=Ring"]
    condition = degraded(story)
    assert condition is not None
    words = "settings of its template make it slow, wrong or impossible: NCCL_ALGO (status.environment.warnings)"
    assert (condition.status, condition.reason) == ("True", "HarmfulSettings")
    assert condition.message == f"{words}; {FIXED}"
    (notice,) = [each for each in story.notices if each.reason == "Placed"]
    assert (notice.warning, notice.note) == (True, f"16 GPUs on gpu-1, gpu-2; {words}")


def test_harmless_settings_are_not_told() -> None:
    story = Story(*two([]), job(env=[{"name": "NCCL_DEBUG", "value": "INFO"}]))
    story.settle()
    assert degraded(story) is None
    (notice,) = [each for each in story.notices if each.reason == "Placed"]
    assert not notice.warning


def with_network(ports: str, container: dict[str, Any] | None = None, **spec: Any) -> Story:
    asked = job(**(container or {}))
    asked["spec"]["network"] = spec
    nodes = two(nics(ports), hca="8")
    for manifest in nodes:
        if manifest["kind"] == "NodeTopology":
            manifest["spec"]["capabilities"] = {"memlockBytes": 8 << 20}
    story = Story(*nodes, asked)
    story.settle()
    return story


def test_shared_roce_goes_over_the_nodes_network_by_consent_alone() -> None:
    for ports, consent, expected in (("RoCE", True, True), ("RoCE", False, None), ("InfiniBand", True, None)):
        spec = pods(with_network(ports, allowHostNetwork=consent))[0]["spec"]
        assert spec.get("hostNetwork") == expected
        assert spec.get("dnsPolicy") == ("ClusterFirstWithHostNet" if expected else None)


def test_two_jobs_on_the_network_of_their_nodes_meet_at_different_ports() -> None:
    half: dict[str, Any] = {"gpus": 8, "topology": {"gpusPerNode": 4}, "network": {"allowHostNetwork": True}}
    jobs = [training_job(name, spec={**job()["spec"], **half}) for name in ("one", "other")]
    story = Story(*two(nics("RoCE"), hca="8"), *jobs)
    story.settle()
    trainers = [made["spec"]["containers"][0] for made in pods(story)]
    ports = [{entry["name"]: entry["value"] for entry in trainer["env"]}["MASTER_PORT"] for trainer in trainers]
    assert sorted(ports) == ["29500", "29500", "29504", "29504"]


@pytest.mark.parametrize(
    ("security", "reason"),
    [
        ({"runAsUser": 1000}, "MemoryLockBounded"),
        ({"runAsNonRoot": True}, "MemoryLockBounded"),
        ({"runAsUser": 0}, None),
        ({}, None),
        ({"runAsUser": "root"}, None),
    ],
    ids=["a user", "any user", "root", "the image says it", "the API server's matter"],
)
def test_a_trainer_that_may_not_lock_memory_is_told(security: dict[str, Any], reason: str | None) -> None:
    found = degraded(with_network("RoCE", {"securityContext": security}, rdma="Preferred"))
    assert (None if found is None else found.reason) == reason
    if found is not None:
        assert "on gpu-1, gpu-2 containers may lock little memory" in found.message


def test_gpu_direct_storage_takes_nodes_that_have_it_and_brings_it_into_the_container() -> None:
    asked = job()
    asked["spec"]["storage"] = {"gpuDirect": True}
    story = Story(*two([]), asked)
    story.settle()
    assert story.status().pending is not None
    story = Story(*two([], labels={"closeknit.dev/gpudirect.storage": "true"}), asked)
    story.settle()
    assert environment(story)["NVIDIA_GDS"] == "enabled"


def test_adapters_that_a_job_has_booked_are_not_given_twice() -> None:
    """Before any Pod is bound: the booking counts one of the resource for each adapter."""
    first, second = job("Required"), job("Required")
    for asked, name in ((first, "train"), (second, "later")):
        asked["metadata"].update(name=name, uid=f"uid-of-{name}")
        asked["spec"].update(gpus=8, topology={"gpusPerNode": 4})
    second["metadata"]["creationTimestamp"] = "2026-11-21T09:59:59Z"
    story = Story(*two(nics("EFA", 4), **{"vpc.amazonaws.com/efa": "4"}), first, second)
    story.settle()
    reasons = [pending.reason if (pending := story.status(name).pending) else None for name in ("train", "later")]
    assert sorted(map(str, reasons)) == ["None", "RDMAUnavailable"]
