"""What the harness reads of the API server itself is what kubectl shows."""

import json

import pytest

from harness.kubectl import KubectlError
from harness.local_cluster import LocalCluster


@pytest.mark.parametrize(
    ("kind", "name", "namespace"),
    [
        pytest.param("namespace", "kube-system", None, id="one of the cluster's"),
        pytest.param("serviceaccount", "default", "default", id="one of a namespace"),
        pytest.param("serviceaccount", "default", None, id="one of the namespace default"),
        pytest.param("sa", None, "kube-public", id="all of a namespace, by a short name"),
        pytest.param("roles.rbac.authorization.k8s.io", None, None, id="all of all namespaces, by the name of a group"),
        pytest.param("PriorityClass", None, None, id="all of the cluster's, by the kind"),
    ],
)
def test_it_is_what_kubectl_shows(
    local_cluster: LocalCluster, kind: str, name: str | None, namespace: str | None
) -> None:
    what = [kind] if name is None else [kind, name]
    where = [f"--namespace={namespace}"] if namespace else [] if name else ["--all-namespaces"]
    shown = json.loads(local_cluster.kubectl("get", *what, *where, "--output=json"))
    read = local_cluster.get(kind, name, namespace)
    if name is None:
        assert (read["items"], len(read["items"]) > 0) == (shown["items"], True)
    else:
        assert read == shown


def test_a_kind_that_comes_later_is_found(local_cluster: LocalCluster) -> None:
    local_cluster.get("pods")
    names = {"plural": "novelties", "singular": "novelty", "kind": "Novelty", "listKind": "NovelList"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    spec = {"group": "reader.example", "scope": "Cluster", "names": names, "versions": versions}
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    local_cluster.apply(crd | {"metadata": {"name": "novelties.reader.example"}})
    local_cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/novelties.reader.example")
    try:
        local_cluster.wait_for(lambda: served(local_cluster, "novelties"), "the kind to be served")
    finally:
        local_cluster.kubectl("delete", "crd", "novelties.reader.example", "--wait=false")


def served(cluster: LocalCluster, kind: str) -> bool:
    try:
        return bool(cluster.get(kind)["items"] == [])
    except KubectlError:
        return False


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("node", "none", 'nodes "none" not found'),
        ("gadget", None, 'the server doesn\'t have a resource type "gadget"'),
    ],
)
def test_a_refusal_is_in_kubectls_words(local_cluster: LocalCluster, kind: str, name: str | None, words: str) -> None:
    with pytest.raises(KubectlError, match=words):
        local_cluster.get(kind, name)
