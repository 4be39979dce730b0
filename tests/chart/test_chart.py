"""The chart: what Helm says of it, what the API server says of every object in it, and what its values refuse."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from closeknit.agent.sysfs.kubelet_config import CONFIGURATION
from closeknit.api.trainingjob import MUTABLE
from harness.chart import CHART, NAMESPACE, REGISTRY, HelmError, helm, render
from harness.local_cluster import LocalCluster

ROOT = CHART.parents[1]
Object = dict[str, Any]


def test_helm_lint_is_content(helm_program: Path) -> None:
    assert "0 chart(s) failed" in helm(helm_program, "lint", "--strict", REGISTRY, str(CHART))


def test_the_api_server_accepts_every_object(local_cluster: LocalCluster, objects: dict[str, Object]) -> None:
    """First as a dry run, then really; what it stores keeps every field that we sent."""
    local_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    apply = ("apply", "--server-side", "--force-conflicts", "--validate=strict", "--filename=-")
    every = "\n---\n".join(map(json.dumps, objects.values()))
    local_cluster.kubectl(*apply, "--dry-run=server", stdin=every)
    local_cluster.kubectl(*apply, stdin=every)
    for policy in (each for name, each in objects.items() if name.startswith("ValidatingAdmissionPolicy ")):
        name = policy["metadata"]["name"]

        def type_checked(name: str = name) -> Object | None:
            stored = local_cluster.get("validatingadmissionpolicy", name)
            status: Object = stored.get("status", {})
            is_current = status.get("observedGeneration") == stored["metadata"]["generation"]
            return status if is_current and "typeChecking" in status else None

        checked = local_cluster.wait_for(type_checked, f"{name} to be type-checked")
        assert checked["typeChecking"] == {}, "the API server warns of an expression"
    # No image is there to run: what stays for other tests is what they use.
    local_cluster.kubectl("delete", "deployment,daemonset", "--all", f"--namespace={NAMESPACE}")


def test_the_policy_of_jobs_knows_the_fields_that_stay_open(objects: dict[str, Object]) -> None:
    policy = objects["ValidatingAdmissionPolicy closeknit-trainingjob"]
    (fields,) = [each["expression"] for each in policy["spec"]["variables"] if each["name"] == "mutable"]
    assert set(yaml.safe_load(fields)) == MUTABLE


def test_the_pods_are_restricted_and_made(local_cluster: LocalCluster, helm_program: Path) -> None:
    """In a namespace that enforces Pod Security's restricted level both workloads get their Pods."""
    name = "chart-restricted"
    size = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    local_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": enforce}})
    local_cluster.apply(
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
    )
    local_cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "chart-gpu", "labels": {"nvidia.com/gpu.present": "true"}},
            "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
            "status": {
                "capacity": size,
                "allocatable": size,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }
    )
    wanted = ("ServiceAccount", "Deployment", "DaemonSet")
    local_cluster.apply(*(each for each in render(helm_program, namespace=name) if each["kind"] in wanted))

    def components() -> bool:
        pods = local_cluster.get("pods", namespace=name)["items"]
        agents = [pod for pod in pods if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "agent"]
        return len(pods) > len(agents) >= 1 and any(pod["spec"].get("nodeName") == "chart-gpu" for pod in agents)

    local_cluster.wait_for(components, "a Pod of the operator, and an agent on the GPU node")
    local_cluster.kubectl("delete", "node", "chart-gpu")
    local_cluster.kubectl("delete", "namespace", name, "--wait=false")


def test_the_chart_carries_the_generated_crds(objects: dict[str, Object]) -> None:
    copies = {path.name: path.read_text() for path in (CHART / "files/crds").glob("*.yaml")}
    assert copies == {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    for text in copies.values():
        crd = yaml.safe_load(text)
        assert objects[f"CustomResourceDefinition {crd['metadata']['name']}"] == crd
        assert crd["metadata"]["annotations"] == {
            "helm.sh/resource-policy": "keep",
            "argocd.argoproj.io/sync-options": "Prune=false",
            "kustomize.toolkit.fluxcd.io/prune": "disabled",
        }


def test_replicas_elect_a_leader_are_spread_and_drained_one_at_a_time(helm_program: Path) -> None:
    def operator(*options: str) -> tuple[Object, list[Object]]:
        rendered = render(helm_program, *options)
        (deployment,) = (each["spec"] for each in rendered if each["kind"] == "Deployment")
        return deployment, [each["spec"] for each in rendered if each["kind"] == "PodDisruptionBudget"]

    deployment, budgets = operator()
    pod = deployment["template"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (
        2,
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
    )
    assert {"--leader-elect", f"--leader-elect-namespace={NAMESPACE}"} < {*pod["containers"][0]["args"]}
    (spread,) = pod["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    labels = deployment["selector"]["matchLabels"]
    # Operators that are not ready hold up no drain.
    budget = {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": {"matchLabels": labels}}
    assert budgets == [budget]
    assert spread["labelSelector"]["matchLabels"] == labels
    alone, none = operator("--set=operator.replicas=1")
    assert (alone["replicas"], none) == (1, [])
    assert "--leader-elect" in alone["template"]["spec"]["containers"][0]["args"]  # the next is there before it ends


def test_a_start_is_seen_soon_and_a_busy_moment_is_no_fault(objects: dict[str, Object]) -> None:
    for name in ("Deployment closeknit-operator", "DaemonSet closeknit-agent"):
        (container,) = objects[name]["spec"]["template"]["spec"]["containers"]
        probe = container["readinessProbe"]
        assert probe["periodSeconds"] <= 2
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 15


def test_crds_can_be_left_to_somebody_else(helm_program: Path) -> None:
    kinds = {each["kind"] for each in render(helm_program, "--set=crds.install=false")}
    assert "CustomResourceDefinition" not in kinds
    assert "Deployment" in kinds


def test_a_cluster_may_have_no_agents(helm_program: Path) -> None:
    assert "DaemonSet" not in {each["kind"] for each in render(helm_program, "--set=agent.enabled=false")}


def test_only_the_named_reach_the_operators_port(objects: dict[str, Object]) -> None:
    policy = objects["NetworkPolicy closeknit-operator"]["spec"]
    pod = objects["Deployment closeknit-operator"]["spec"]["template"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress"]
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert policy["ingress"] == [{"from": [monitoring], "ports": [{"protocol": "TCP", "port": "http"}]}]
    assert policy["ingress"][0]["ports"][0]["port"] in [port["name"] for port in pod["spec"]["containers"][0]["ports"]]


@pytest.mark.parametrize(
    ("option", "ingress"),
    [
        ("--set-json=networkPolicy.metricsFrom=[]", []),
        (
            '--set-json=networkPolicy.metricsFrom=[{"podSelector": {}}]',
            [{"from": [{"podSelector": {}}], "ports": [{"protocol": "TCP", "port": "http"}]}],
        ),
        ("--set=networkPolicy.enabled=false", None),
    ],
)
def test_who_that_is_can_be_said(helm_program: Path, option: str, ingress: list[Object] | None) -> None:
    policies = [each["spec"]["ingress"] for each in render(helm_program, option) if each["kind"] == "NetworkPolicy"]
    assert policies == ([] if ingress is None else [ingress, ingress])  # the agents', and the operator's


def test_policies_and_bindings_follow_the_release_namespace(helm_program: Path) -> None:
    rendered = render(helm_program, namespace="elsewhere")
    policies = {
        each["metadata"]["name"]: each["spec"] for each in rendered if each["kind"] == "ValidatingAdmissionPolicy"
    }
    conditions = {
        name: spec["matchConditions"][0]["expression"] for name, spec in policies.items() if "matchConditions" in spec
    }
    account = "request.userInfo.username == 'system:serviceaccount:elsewhere:closeknit-{}'"
    begins = {
        "closeknit-agent-node": account.format("agent"),
        "closeknit-agent-nodetopology": account.format("agent"),
        "closeknit-operator-children": f"{account.format('operator')} && !(",
        "closeknit-operator-disruptions": account.format("operator"),
        "closeknit-operator-files": account.format("operator"),
        "closeknit-operator-jobs": account.format("operator"),
        "closeknit-operator-nodetopologies": account.format("operator"),
        "closeknit-prefix": f"{account.format('operator')} ? request.?subResource.orValue('') != '' || ",
        "closeknit-prefix-status": f"{account.format('operator')} ? request.?subResource.orValue('') != '' || ",
    }
    assert {name: each[: len(begins[name])] for name, each in conditions.items()} == begins
    rules = [rule["expression"] for rule in policies["closeknit-operator-children"]["validations"]]
    assert "!request.namespace.startsWith('kube-') && request.namespace != 'elsewhere'" in rules
    bindings = {each["spec"]["policyName"] for each in rendered if each["kind"] == "ValidatingAdmissionPolicyBinding"}
    assert bindings == policies.keys()
    subjects = [each["subjects"][0] for each in rendered if each["kind"] == "ClusterRoleBinding"]
    assert {(subject["name"], subject["namespace"]) for subject in subjects} == {
        ("closeknit-operator", "elsewhere"),
        ("closeknit-agent", "elsewhere"),
        ("closeknit-test", "elsewhere"),
    }


@pytest.mark.parametrize(
    ("operation", "resource", "judges"),
    [
        ("CREATE", "pods", {"closeknit-operator-children", "closeknit-prefix"}),
        ("CREATE", "pods/binding", {"closeknit-prefix"}),
        ("CREATE", "pods/eviction", {"closeknit-prefix"}),
        ("UPDATE", "pods", {"closeknit-prefix"}),
        ("UPDATE", "pods/resize", {"closeknit-prefix"}),
        # The one where the Pod bears closeknit.dev/job, the other where it does not.
        ("UPDATE", "pods/status", {"closeknit-prefix-status", "closeknit-operator-disruptions"}),
        ("DELETE", "pods", {"closeknit-operator-children"}),
        ("CONNECT", "pods/exec", {"closeknit-operator-children"}),
    ],
)
def test_each_policy_that_sees_a_write_of_every_pod_is_counted(
    helm_program: Path, operation: str, resource: str, judges: set[str]
) -> None:
    """Each makes CEL values of the Pod of its own, whoever writes."""

    def matches(rules: list[Object]) -> bool:
        every = resource.partition("/")[0] + "/*"  # the API server takes the Pod itself for one of these, too
        return any(
            rule["apiGroups"] == [""] and operation in rule["operations"] and {resource, every} & {*rule["resources"]}
            for rule in rules
        )

    policies = [each for each in render(helm_program) if each["kind"] == "ValidatingAdmissionPolicy"]
    seen = {each["metadata"]["name"]: each["spec"]["matchConstraints"] for each in policies}
    assert judges == {
        name
        for name, seen_by in seen.items()
        if matches(seen_by["resourceRules"]) and not matches(seen_by.get("excludeResourceRules", []))
    }


def test_the_condition_of_the_operators_policy_is_all_its_rules(helm_program: Path) -> None:
    (policy,) = (
        each["spec"]
        for each in render(helm_program)
        if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] == "closeknit-operator-children"
    )
    (condition,) = policy["matchConditions"]
    rules = " && ".join(f"({rule['expression']})" for rule in policy["validations"])
    for variable in reversed(policy["variables"]):
        stands_for = "false" if variable["name"] == "trusted" else variable["expression"]
        literal = f"({stands_for})".replace("\\", r"\\")
        rules = re.sub(rf"variables\.{variable['name']}\b", literal, rules)
    assert condition["expression"].partition(" && ")[2] == f"!({rules})"
    assert "variables" not in rules and "namespaceObject" not in rules  # a condition knows neither


def test_an_image_has_registry_tag_and_pull_secrets(helm_program: Path) -> None:
    rendered = render(
        helm_program, "--set=image.registry=mirror:5000,image.tag=v9", '--set-json=imagePullSecrets=["pull"]'
    )
    pods = [each["spec"]["template"]["spec"] for each in rendered if each["kind"] in ("Deployment", "DaemonSet")]
    images = {pod["containers"][0]["image"] for pod in pods}
    assert images == {"mirror:5000/closeknit/operator:v9", "mirror:5000/closeknit/agent:v9"}
    assert [pod["imagePullSecrets"] for pod in pods] == [[{"name": "pull"}]] * 2


def test_names_that_look_like_numbers_stay_text(helm_program: Path) -> None:
    given = ("--set-string=agent.runtimeClassName=123", "--set-string=operator.priorityClassName=true")
    secrets = '--set-json=imagePullSecrets=["456"]'
    found = {each["kind"]: each for each in render(helm_program, *given, secrets, namespace="789")}
    pods = {kind: found[kind]["spec"]["template"]["spec"] for kind in ("Deployment", "DaemonSet")}
    assert pods["DaemonSet"]["runtimeClassName"] == "123"
    assert pods["Deployment"]["priorityClassName"] == "true"
    assert pods["Deployment"]["imagePullSecrets"] == [{"name": "456"}]
    assert found["ServiceAccount"]["metadata"]["namespace"] == "789"
    assert found["ClusterRoleBinding"]["subjects"][0]["namespace"] == "789"


def test_two_renderings_are_equal_and_need_no_hook(helm_program: Path) -> None:
    """So that Argo CD and Flux find nothing to change."""
    render_it = ("template", "closeknit", REGISTRY, str(CHART))
    once, again = (helm(helm_program, *render_it) for _ in range(2))
    assert once == again
    assert {*re.findall(r'helm\.sh/hook"?: (\S+)', once)} <= {"test"}


def test_a_cluster_that_is_too_old_is_refused(helm_program: Path) -> None:
    with pytest.raises(
        HelmError, match=r"chart requires kubeVersion: >=1\.34\.0-0 which is incompatible with Kubernetes v1\.33"
    ):
        render(helm_program, "--kube-version=1.33.9")


def test_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_the_agent_is_root_only_where_it_asks_the_kubelet(helm_program: Path) -> None:
    def agent(*options: str) -> Object:
        (found,) = (each for each in render(helm_program, *options) if each["kind"] == "DaemonSet")
        spec: Object = found["spec"]["template"]["spec"]
        return spec

    usual = agent()
    assert usual["securityContext"]["runAsNonRoot"] is True
    assert "runAsUser" not in usual["containers"][0]["securityContext"]
    assert not any("pod-resources" in argument for argument in usual["containers"][0]["args"])
    assert not [volume for volume in usual["volumes"] if "hostPath" in volume]
    asking = agent("--set=agent.podResources=true")
    security = asking["containers"][0]["securityContext"]
    assert (security["runAsUser"], security["capabilities"]) == (0, {"drop": ["ALL"]})
    assert security["readOnlyRootFilesystem"] is True and security["allowPrivilegeEscalation"] is False
    (option,) = (argument for argument in asking["containers"][0]["args"] if "pod-resources" in argument)
    socket = option.removeprefix("--pod-resources=")
    (mount,) = (each for each in asking["containers"][0]["volumeMounts"] if each["name"] == "pod-resources")
    assert mount["mountPath"] == socket.removesuffix("/kubelet.sock") and mount["readOnly"] is True


def test_the_agent_sees_of_the_node_what_the_administrator_mounts(helm_program: Path) -> None:
    def mounts(*values: str) -> dict[str, tuple[str, bool]]:
        """Path on the node -> path in the agent's container, and whether it is read-only."""
        (agent,) = (each for each in render(helm_program, *values) if each["kind"] == "DaemonSet")
        spec = agent["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
        mounted = spec["containers"][0]["volumeMounts"]
        return {
            volumes[mount["name"]]: (mount["mountPath"], mount.get("readOnly", False))
            for mount in mounted
            if mount["name"] in volumes
        }

    assert mounts() == {}
    assert mounts("--set=agent.hostSys=true") == {"/sys": ("/sys", True)}
    sees_processes = [
        each["spec"]["template"]["spec"].get("hostPID", False)
        for values in ((), ("--set=agent.hostPID=true",))
        for each in render(helm_program, *values)
        if each["kind"] == "DaemonSet"
    ]
    assert sees_processes == [False, True]
    file = "/var/lib/kubelet/config.yaml"
    assert mounts(f"--set=agent.kubeletConfig={file}") == {file: (f"/{CONFIGURATION}", True)}
