"""What a real API server makes of the examples, and what Helm says after it has looked at what a cluster offers."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from closeknit.kube.api import JsonObject
from harness import object_schemas
from harness.build import bring
from harness.chart import CHART, NAMESPACE, REGISTRY, HelmError, helm, render
from harness.install import install
from harness.local_cluster import LocalCluster
from harness.machines import device_class
from harness.projects import KUBECONFORM

ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
ENFORCED = "pod-security.kubernetes.io/enforce"
NVIDIA = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
OFFERED = {"nvidia.com/gpu": "8", "cpu": "8", "memory": "64Gi", "pods": "8"}
OFFERING: JsonObject = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "of-the-chart"},
    "status": {"capacity": OFFERED, "allocatable": OFFERED},
}
EXAMPLES = sorted((CHART / "ci").glob("*-values.yaml"))
OTHERS = ("ServiceMonitor", "PrometheusRule", "Certificate", "Issuer")  # kinds that this cluster lacks
TOPOLOGY = "--api-versions=closeknit.dev/v1alpha1/ClusterTopology"
WARNINGS = re.compile(r"WARNING: (.*?)[:,.]")


@pytest.fixture(scope="module")
def installed(local_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The chart's objects are there."""
    install(local_cluster)
    yield local_cluster
    for label in (ADMIN_ACCESS, ENFORCED):
        local_cluster.kubectl("label", "namespace", NAMESPACE, f"{label}-")
    local_cluster.kubectl("delete", "node", OFFERING["metadata"]["name"], "--ignore-not-found")
    local_cluster.kubectl("delete", "runtimeclass/nvidia", "deviceclass/gpu.nvidia.com", "--ignore-not-found")


@pytest.fixture(autouse=True)
def nothing_is_there(installed: LocalCluster) -> None:
    """Of what an agent needs but nodes with GPUs, whatever a test or its first try has left."""
    for kind, name in (("runtimeclass", "nvidia"), ("deviceclass", "gpu.nvidia.com")):
        installed.writer.delete(kind, name)
    installed.patch("namespace", NAMESPACE, {"metadata": {"labels": {ADMIN_ACCESS: None, ENFORCED: None}}})
    installed.apply(OFFERING)


def test_the_api_server_accepts_what_the_examples_make(installed: LocalCluster) -> None:
    """As a dry run, and of each kind of object only what no other example makes."""
    helm_program = installed.binaries.helm
    usual = [json.dumps(each) for each in render(helm_program)]
    made: dict[str, None] = {}
    for file in EXAMPLES:
        for each in render(helm_program, f"--values={file}", TOPOLOGY):
            if each["kind"] not in OTHERS:
                made[json.dumps(each)] = None
    for namespace in ("team-a", "team-b"):
        installed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    installed.kubectl("label", "namespace", NAMESPACE, f"{ADMIN_ACCESS}=true", "--overwrite")
    every = "\n---\n".join(each for each in made if each not in usual)
    strictly = ("--server-side", "--force-conflicts", "--validate=strict", "--dry-run=server", "--filename=-")
    answered = installed.kubectl("apply", *strictly, stdin=every)
    assert {line.partition(".")[0] for line in answered.splitlines()} >= {"deployment", "daemonset", "clustertopology"}
    installed.kubectl("label", "namespace", NAMESPACE, f"{ADMIN_ACCESS}-")
    installed.kubectl("delete", "namespace", "team-a", "team-b", "--wait=false")


def test_kubeconform_accepts_every_object_of_every_example(installed: LocalCluster, tmp_path: Path) -> None:
    """By the schemas of this API server, those of the CustomResourceDefinitions among them."""
    (program,) = bring((KUBECONFORM,)).values()
    schemas, made = tmp_path / "schemas", tmp_path / "made"
    for folder in (schemas, made):
        folder.mkdir()
    kinds = set()
    for file in EXAMPLES:
        objects = render(installed.binaries.helm, f"--values={file}", TOPOLOGY)
        kinds |= {each["kind"] for each in objects}
        (made / f"{file.stem}.json").write_text("\n---\n".join(map(json.dumps, objects)))
    object_schemas.write(json.loads(installed.kubectl("get", "--raw=/openapi/v2")), kinds, schemas)
    location = f"-schema-location={schemas}/{object_schemas.LOCATION}"
    judge = [str(program), "-strict", f"-skip={','.join(OTHERS)}", location]
    done = subprocess.run([*judge, str(made)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    wrong = made / "wrong.yaml"
    wrong.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {ports: [{port: 80, prot: TCP}]}\n")
    done = subprocess.run([*judge, str(wrong)], capture_output=True, text=True, check=False)
    assert "additional properties 'prot' not allowed" in done.stdout


def rehearsed(cluster: LocalCluster, *options: str) -> tuple[str, list[str], str]:
    """How agents reach the GPUs by the manifest, what the notes warn of, and what they say of the way."""
    said = helm(
        cluster.binaries.helm,
        "install",
        "closeknit",
        str(CHART),
        "--dry-run=server",
        "--take-ownership",
        "--disable-openapi-validation",  # takes half the time, and the API server has judged all of it above
        "--set=crds.install=false",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--namespace={NAMESPACE}",
        REGISTRY,
        *options,
    )
    manifest, _, notes = said.partition("\nNOTES:\n")
    ways = [way for way in ("resourceClaimTemplateName: closeknit-agent", "runtimeClassName: ") if way in manifest]
    reach = re.search(r"They reach the GPUs by (.*?)\.\n", notes, re.DOTALL)
    return ", ".join(ways), WARNINGS.findall(notes), " ".join(reach[1].split()) if reach else ""


def test_the_way_to_the_gpus_is_what_the_cluster_offers(installed: LocalCluster) -> None:
    """RuntimeClass before claim; and the notes warn of all that is missing."""
    claim, runtime = "resourceClaimTemplateName: closeknit-agent", "runtimeClassName: "
    no_class = "there is no RuntimeClass nvidia"
    by_class, by_claim = "the RuntimeClass nvidia (agent.access: Auto)", "NVIDIA's DRA driver (agent.access: Auto)"
    assert rehearsed(installed) == (runtime, [no_class], by_class)
    assert rehearsed(installed, "--set=agent.runtimeClassName=")[:2] == ("", [])
    with pytest.raises(HelmError, match=r"agent\.access is Claim, and the API server refuses such a claim until"):
        rehearsed(installed, "--set=agent.access=Claim")
    installed.apply(device_class())
    assert rehearsed(installed) == (runtime, [no_class], by_class)
    installed.kubectl("label", "namespace", NAMESPACE, f"{ADMIN_ACCESS}=true", "--overwrite")
    way, warnings, said = rehearsed(installed)
    assert (way, warnings) == (claim, [])
    assert said.endswith(by_claim)
    installed.kubectl("delete", "deviceclass", "gpu.nvidia.com")
    assert rehearsed(installed, "--set=agent.access=Claim")[:2] == (claim, ["there is no DeviceClass gpu"])
    installed.apply(NVIDIA)
    assert rehearsed(installed) == (runtime, [], by_class)


def kind(name: str, version: str) -> JsonObject:
    """The definition of one of the GPU operator's kinds, of any content."""
    plural = f"{name.lower()}s".replace("policys", "policies")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.nvidia.com"},
        "spec": {
            "group": "nvidia.com",
            "scope": "Cluster",
            "names": {"kind": name, "plural": plural, "singular": name.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def test_both_configurations_of_the_gpu_operator_are_warned_of(installed: LocalCluster) -> None:
    """Its controller refuses a ClusterPolicy beside a GPUCluster (controllers/clusterpolicy_controller.go)."""
    installed.apply(NVIDIA, kind("ClusterPolicy", "v1"), kind("GPUCluster", "v1alpha1"))
    try:
        installed.kubectl("wait", "--for=condition=Established", "crd/clusterpolicies.nvidia.com", "--timeout=30s")
        installed.kubectl("wait", "--for=condition=Established", "crd/gpuclusters.nvidia.com", "--timeout=30s")
        installed.apply(
            {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}}
        )
        assert rehearsed(installed)[1] == []
        installed.apply(
            {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "gpu-cluster"}}
        )
        assert rehearsed(installed)[1] == ["there is a ClusterPolicy and a GPUCluster"]
    finally:
        installed.kubectl("delete", "crd", "clusterpolicies.nvidia.com", "gpuclusters.nvidia.com")


def test_a_cluster_where_nothing_gives_pods_gpus_is_warned_of(installed: LocalCluster) -> None:
    """Neither a device plugin nor DRA: it is seen by what Nodes offer, and by the DeviceClass of NVIDIA's driver."""
    installed.apply(NVIDIA)
    assert rehearsed(installed)[1] == []
    installed.kubectl("delete", "node", OFFERING["metadata"]["name"])
    assert rehearsed(installed)[1] == ["nothing gives Pods GPUs here"]
    installed.apply(device_class())
    assert rehearsed(installed)[1] == []
    installed.kubectl("delete", "deviceclass", "gpu.nvidia.com")
    installed.apply(OFFERING)


def test_what_is_not_there_is_told_before_anything_is_made(installed: LocalCluster) -> None:
    with pytest.raises(
        HelmError, match=r"rbac\.namespaces names nowhere, which is not there: create the namespace first"
    ):
        rehearsed(installed, "--set=rbac.namespaces={nowhere,default}")
    installed.apply(NVIDIA)
    theirs = "--set=operator.serviceAccount.create=false,operator.serviceAccount.name=nobody"
    classes = "--set=operator.priorityClassName=one,agent.priorityClassName=two"
    assert rehearsed(installed, theirs, classes)[1] == [
        "there is no PriorityClass two (agent",
        "there is no PriorityClass one (operator",
        f"there is no ServiceAccount nobody in namespace {NAMESPACE} (operator",
    ]


def test_a_kind_that_the_values_want_and_the_cluster_lacks_is_told_in_words(installed: LocalCluster) -> None:
    """Helm says of it: no matches for kind "ServiceMonitor" in version "monitoring.coreos.com/v1"."""
    installed.apply(NVIDIA)
    lacking = {
        "metrics.serviceMonitor": "ServiceMonitor of monitoring.coreos.com/v1: install the Prometheus operator's",
        "metrics.prometheusRule": "PrometheusRule of monitoring.coreos.com/v1: install the Prometheus operator's",
        "metrics.certificate.certManager": "Certificate of cert-manager.io/v1: install cert-manager first, or set it",
    }
    with pytest.raises(HelmError) as refused:
        rehearsed(installed, *(f"--set={path}.enabled=true" for path in lacking))
    for path, words in lacking.items():
        assert f"- {path}.enabled is true, and this cluster has no kind {words}" in str(refused.value)
    assert rehearsed(installed, *(f"--set={path}.enabled=auto" for path in list(lacking)[:2]))[1] == []


def test_a_topology_whose_kind_nobody_has_brought_is_told_in_words(installed: LocalCluster) -> None:
    installed.apply(NVIDIA)
    levels = "--set=clusterTopology.levels[0].name=rack,clusterTopology.levels[0].nodeLabel=net.example/rack"
    assert rehearsed(installed, levels)[1] == []
    installed.kubectl("delete", "crd", "clustertopologies.closeknit.dev")
    try:
        words = "this cluster has no kind ClusterTopology of closeknit.dev/v1alpha1: apply the files of crds/ first"
        with pytest.raises(HelmError, match=words):
            rehearsed(installed, levels)
    finally:
        installed.apply(CHART / "files" / "crds" / "clustertopologies.yaml")
        installed.kubectl("wait", "--for=condition=Established", "crd/clustertopologies.closeknit.dev", "--timeout=30s")


def test_a_second_release_is_refused(installed: LocalCluster) -> None:
    """It would take the roles and policies of the first; and one that is gone, its bindings left, is no first one."""
    installed.apply(NVIDIA)
    (operator,) = (each for each in render(installed.binaries.helm) if each["kind"] == "Deployment")
    operator["spec"]["replicas"] = 0
    assert rehearsed(installed, "--namespace=elsewhere")[1] == []
    installed.apply(operator)
    try:
        assert rehearsed(installed)[1] == []
        already = rf"- closeknit runs in this cluster already, as release closeknit in namespace {NAMESPACE}, and a"
        with pytest.raises(HelmError, match=already):
            rehearsed(installed, "--namespace=elsewhere")
    finally:
        installed.kubectl("delete", "deployment", operator["metadata"]["name"], f"--namespace={NAMESPACE}")


def test_a_namespace_that_refuses_the_agents_is_warned_of(installed: LocalCluster) -> None:
    installed.apply(NVIDIA)
    installed.kubectl("label", "namespace", NAMESPACE, f"{ENFORCED}=baseline", "--overwrite")
    warning = f"namespace {NAMESPACE} enforces Pod Security's level baseline"
    assert rehearsed(installed, "--set=agent.hostSys=true")[1] == [warning]
