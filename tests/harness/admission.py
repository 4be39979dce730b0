"""The chart's admission policies in effect on a control plane, and why they refuse."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.api_writer import ADMIN, Login
from harness.chart import wait_for_policies
from harness.install import install
from harness.kubectl import KubectlError, token_of
from harness.local_cluster import LocalCluster

RACK = {"example.com/rack": "r1"}  # a label that is not closeknit's


@contextmanager
def policies_on_nodes(cluster: LocalCluster, *names: str) -> Iterator[LocalCluster]:
    """The installed chart, its policies in effect, and labelled nodes of these names."""
    install(cluster)
    for name in names:  # not by kubectl apply: a later server-side apply would take over what that owns
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": RACK}}
        answer = cluster.writer.create(node)
        assert answer.refusal == ""
    wait_for_policies(cluster, names[0])
    yield cluster
    cluster.kubectl("delete", "node", *names)  # their NodeTopologies and Pods go with them


def creation_refusal(
    cluster: LocalCluster,
    body: Mapping[str, Any],
    namespace: str | None = None,
    *,
    login: Login | Path = ADMIN,
    strict: bool = True,
    store: bool = False,
) -> str:
    """Why the API server does not let this be made, without its preamble; empty where it does. A path: a kubeconfig."""
    if isinstance(login, Path):
        login = Login(token=token_of(login))
    answer = cluster.writer.create(body, namespace, login=login, dry_run=not store, strict=strict)
    return answer.refusal.rpartition("denied request: ")[2]


def may(cluster: LocalCluster, login: Login, verb: str, resource: str, namespace: str, group: str = "") -> bool:
    """Whether somebody has this right in a namespace, as `kubectl auth can-i` says it."""
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = cluster.writer.create({**kind, "spec": {"resourceAttributes": attributes}}, login=login)
    return bool(answer.body.get("status", {}).get("allowed"))


def refusal(cluster: LocalCluster, *arguments: str, body: object = None, kubeconfig: Path | None = None) -> str:
    """Why the API server refuses, without its preamble; empty where it accepts."""
    try:
        cluster.kubectl(*arguments, stdin=None if body is None else json.dumps(body), kubeconfig=kubeconfig)
    except KubectlError as error:
        return error.stderr.strip().rpartition("denied request: ")[2]
    return ""
