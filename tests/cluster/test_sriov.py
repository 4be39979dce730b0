"""NICs by SR-IOV functions on the real control plane: the scheduler counts them, and Pods name their networks.

The SR-IOV device plugin is played by this test, which writes its resources into the Nodes; Multus, which would read the
annotation on a real kubelet, by nobody.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from closeknit.api.names import API_VERSION
from harness.kubectl import KubectlError
from harness.operator_bed import DRA_NODES, ON_DRA, Bed

RAILS = ("nvidia.com/rail0", "nvidia.com/rail1")
NETWORKS = [{"resource": resource, "network": f"default/{resource.rpartition('/')[2]}"} for resource in RAILS]
HALVES: dict[str, Any] = ON_DRA | {"gpus": 8, "topology": {"gpusPerNode": 4}, "network": {"rdma": "Required"}}


@pytest.fixture(scope="module")
def rails(running: Bed) -> Iterator[Bed]:
    """Of each of two NICs of two nodes there is one function left."""
    topology = {"apiVersion": API_VERSION, "kind": "ClusterTopology", "metadata": {"name": "default"}}
    running.cluster.apply({**topology, "spec": {"fabric": {"sriovNetworks": NETWORKS}}})
    offer(running, "1")
    yield running
    offer(running, None)
    running.cluster.delete("clustertopology", "default")


def offer(bed: Bed, amount: str | None) -> None:
    amounts = dict.fromkeys(RAILS, amount)
    for node in DRA_NODES:
        bed.cluster.patch("node", node, {"status": {"capacity": amounts, "allocatable": amounts}}, subresource="status")


def test_each_pod_has_a_function_of_each_nic_and_a_second_job_waits_for_them(rails: Bed, bed: Bed) -> None:  # noqa: ARG001
    """The second has GPUs on the same nodes, and gets its functions when the first has ended."""
    bed.submit("train", **HALVES)
    bed.wait_for_state("Running")
    assert sorted(map(str, bed.nodes_of_pods())) == sorted(DRA_NODES)
    for pod in bed.all("pods"):
        resources = pod["spec"]["containers"][0]["resources"]
        assert {name: resources["limits"][name] for name in RAILS} == dict.fromkeys(RAILS, "1")
        assert pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "default/rail0,default/rail1"
    bed.submit("other", **HALVES)
    bed.wait_for_reason("RDMAUnavailable", "other")
    for name in bed.names("pods"):
        bed.finish(name, "succeed")
    bed.wait_for_state("Running", "other")


def test_a_declaration_that_goes_ends_no_job_that_runs(rails: Bed, bed: Bed) -> None:
    """Nor does a tenant's word for Multus that nobody can read keep his own job, or another's, from running."""
    nested = {"k8s.v1.cni.cncf.io/networks": "[" * 4096}
    container = {"name": "trainer", "image": "registry.example/train:1"}
    bed.submit(**HALVES, template={"metadata": {"annotations": nested}, "spec": {"containers": [container]}})
    status = bed.wait_for_state("Running")
    assert [pod["metadata"]["annotations"] | nested for pod in bed.all("pods")] == [
        pod["metadata"]["annotations"] for pod in bed.all("pods")
    ]
    uids = [pod["metadata"]["uid"] for pod in bed.all("pods")]
    rails.cluster.patch("clustertopology", "default", {"spec": {"fabric": {"sriovNetworks": []}}})
    try:
        bed.submit("other", **HALVES)
        bed.wait_for_reason("RDMAUnavailable", "other")
        assert bed.job()["status"]["state"] == "Running"
        assert bed.job()["status"]["attempt"] == status["attempt"]
        assert [pod["metadata"]["uid"] for pod in bed.all("pods")] == uids
    finally:
        rails.cluster.patch("clustertopology", "default", {"spec": {"fabric": {"sriovNetworks": NETWORKS}}})


def test_gpus_are_no_functions_to_the_api_server(rails: Bed) -> None:
    """Every Pod would ask for one of them in the place of those that it was booked."""
    gpus = [*NETWORKS, {"resource": "nvidia.com/gpu", "network": "default/gpus"}]
    with pytest.raises(KubectlError, match=r"resource is one of GPUs; name one of SR-IOV functions"):
        rails.cluster.patch("clustertopology", "default", {"spec": {"fabric": {"sriovNetworks": gpus}}})
