"""The chart's admission policies in effect on a control plane, and why they refuse."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.chart import wait_for_policies
from harness.install import install
from harness.kubectl import KubectlError
from harness.local_cluster import LocalCluster

RACK = {"example.com/rack": "r1"}  # a label that is not closeknit's


@contextmanager
def policies_on_nodes(cluster: LocalCluster, *names: str) -> Iterator[LocalCluster]:
    """The installed chart, its policies in effect, and labelled nodes of these names."""
    install(cluster)
    for name in names:  # not by kubectl apply: a later server-side apply would take over what that owns
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": RACK}}
        cluster.kubectl("create", "--filename=-", stdin=json.dumps(node))
    wait_for_policies(cluster, names[0])
    yield cluster
    cluster.kubectl("delete", "node", *names)  # their NodeTopologies and Pods go with them


def refusal(cluster: LocalCluster, *arguments: str, body: object = None, kubeconfig: Path | None = None) -> str:
    """Why the API server refuses, without its preamble; empty where it accepts."""
    try:
        cluster.kubectl(*arguments, stdin=None if body is None else json.dumps(body), kubeconfig=kubeconfig)
    except KubectlError as error:
        return error.stderr.strip().rpartition("denied request: ")[2]
    return ""
