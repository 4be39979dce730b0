"""Two real nodes: their Pods reach each other and the API server, get their own addresses and the GPUs they ask for."""

import pytest

from harness.local_cluster import LocalCluster
from harness.node.gpus import pretended, uuids
from harness.node.local_node import LocalNode
from harness.node.trainers import DEBIAN
from node.pods import environment, pod, wait_for_phase

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("no_pods_are_left")]

PYTHON_FETCH = "python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())'"


def test_pods_of_two_nodes_reach_each_other(node_cluster: LocalCluster, nodes: tuple[LocalNode, LocalNode]) -> None:
    one, other = nodes
    node_cluster.apply(pod("server", one.site.name, "serve", "80"))
    address = wait_for_phase(node_cluster, "server", "Running")["podIP"]
    assert address.startswith(one.site.pods.removesuffix("0/24"))
    node_cluster.apply(pod("client", other.site.name, "fetch", f"http://{address}/"))
    wait_for_phase(node_cluster, "client", "Succeeded")
    assert node_cluster.kubectl("logs", "client").startswith("server\n")


def test_a_pod_reaches_the_api_server(node_cluster: LocalCluster, nodes: tuple[LocalNode, LocalNode]) -> None:
    """By the Service `kubernetes`; it answers in plain words to who does not speak TLS."""
    node_cluster.apply(pod("asks", nodes[0].site.name, "fetch", "http://10.96.0.1:443/"))
    wait_for_phase(node_cluster, "asks", "Succeeded")
    assert node_cluster.kubectl("logs", "asks") == "Client sent an HTTP request to an HTTPS server.\n"


def test_a_host_name_behind_a_headless_service_is_known(
    node_cluster: LocalCluster, nodes: tuple[LocalNode, LocalNode]
) -> None:
    """As the ranks of a job find each other."""
    server = pod("server", nodes[0].site.name, "serve", "80")
    server["metadata"]["labels"] = {"app": "server"}
    server["spec"] |= {"hostname": "first", "subdomain": "ranks"}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "server"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ranks"}, "spec": spec}
    node_cluster.apply(service, server)
    wait_for_phase(node_cluster, "server", "Running")
    url = "http://first.ranks.default.svc/"
    client = pod("client", nodes[1].site.name, "-c", f"until {PYTHON_FETCH} {url}; do :; done")
    client["spec"]["containers"][0] |= {"image": DEBIAN.image}
    node_cluster.apply(client)
    wait_for_phase(node_cluster, "client", "Succeeded")
    assert node_cluster.kubectl("logs", "client").startswith("first\n")
    node_cluster.kubectl("delete", "service", "ranks")


def test_a_pod_gets_gpus_of_its_node(node_cluster: LocalCluster, nodes: tuple[LocalNode, LocalNode]) -> None:
    node = nodes[1]
    machine = pretended(node.site.name, "hgx-h100-4")
    node.offer_gpus(machine)
    try:
        node_cluster.apply(pod("three", node.site.name, "pause", gpus=3), pod("one", node.site.name, "pause", gpus=1))
        for name in ("three", "one"):
            wait_for_phase(node_cluster, name, "Running")
        got = [environment(node_cluster, name)["NVIDIA_VISIBLE_DEVICES"].split(",") for name in ("three", "one")]
        assert [len(each) for each in got] == [3, 1]
        assert sorted(got[0] + got[1]) == sorted(uuids(machine))
    finally:
        node.withdraw_gpus()
