"""The chart's values: what each does, what a wrong one is told, and what the pages say of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from closeknit.agent.main import READING_S, app
from closeknit.cluster.store.watched_kinds import KINDS
from closeknit.controller.main import main as operator
from harness import chart_values
from harness.build import bring
from harness.chart import CHART, NAMESPACE, REGISTRY, HelmError, helm, render
from harness.projects import HELM_3

Object = dict[str, Any]
WRONG = {
    each["name"]: (each["values"], each["says"])
    for each in yaml.safe_load((Path(__file__).parent / "wrong_values.yaml").read_text())
}
EXAMPLES = sorted((CHART / "ci").glob("*-values.yaml"))
MONITORS = "monitoring.coreos.com/v1/"
OPENSHIFT = "--api-versions=security.openshift.io/v1"
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def named(objects: list[Object]) -> dict[str, Object]:
    return {f"{each['kind']} {each['metadata']['name']}": each for each in objects}


def pods(objects: Mapping[str, Object]) -> tuple[Object, Object]:
    """The Pod templates of operator and agent."""
    kinds = ("Deployment closeknit-operator", "DaemonSet closeknit-agent")
    found = [objects[kind]["spec"]["template"] for kind in kinds]
    return found[0], found[1]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_told_what_was_meant(helm_program: Path, tmp_path: Path, name: str) -> None:
    values, says = WRONG[name]
    files = tmp_path / "site.yaml", tmp_path / "wrong.yaml"
    for file, content in zip(files, ({"image": {"registry": "registry.example.com"}}, values), strict=True):
        file.write_text(yaml.safe_dump(content))
    with pytest.raises(HelmError) as refusal:
        render(helm_program, *(f"--values={file}" for file in files))
    lines = [line.strip() for line in str(refusal.value).splitlines()]
    assert sorted(line for line in lines if line.startswith("- ")) == sorted(says)


def test_lint_refuses_what_an_installation_would(helm_program: Path) -> None:
    with pytest.raises(HelmError, match=r"templates/values/refused/values\.yaml"):
        helm(helm_program, "lint", str(CHART))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_renders(helm_program: Path, file: Path) -> None:
    assert named(render(helm_program, f"--values={file}")).keys() >= {"Deployment closeknit-operator"}


def test_a_registry_is_set_at_one_place_and_a_digest_decides(helm_program: Path) -> None:
    digests = [f"sha256:{letter * 64}" for letter in "ab"]
    setting = f"--set=operator.image.digest={digests[0]},agent.image.digest={digests[1]}"

    def images(*options: str) -> list[str]:
        operator, agent = pods(named(render(helm_program, *options)))
        arguments = operator["spec"]["containers"][0]["args"]
        (sidecar,) = [each.removeprefix("--sidecar-image=") for each in arguments if "sidecar" in each]
        assert sidecar == agent["spec"]["containers"][0]["image"]
        return [each["spec"]["containers"][0]["image"] for each in (operator, agent)]

    assert images("--set=image.registry=one.example.com,global.imageRegistry=two.example.com/x", setting) == [
        f"two.example.com/x/closeknit/operator:0.1.0@{digests[0]}",
        f"two.example.com/x/closeknit/agent:0.1.0@{digests[1]}",
    ]
    own = "--set=image.registry=,operator.image.repository=one.example.com/a/op,agent.image.repository=localhost/ag"
    assert images(own) == ["one.example.com/a/op:0.1.0", "localhost/ag:0.1.0"]


def test_each_value_arrives_where_it_is_looked_for(helm_program: Path) -> None:
    known = f"--api-versions={MONITORS}ServiceMonitor,closeknit.dev/v1alpha1/ClusterTopology"
    objects = named(render(helm_program, f"--values={CHART / 'ci/everything-values.yaml'}", known))
    assert all(
        each["metadata"]["labels"]["team"] == "infra"
        for each in objects.values()
        if each["kind"] != "CustomResourceDefinition"
    )
    for template, account in zip(pods(objects), ("ck-operator", "ck-agent"), strict=True):
        labels, spec = template["metadata"]["labels"], template["spec"]
        assert (labels["cost-centre"], labels["team"]) == ("42", "infra")
        assert template["metadata"]["annotations"] == {"example.com/owner": "somebody@example.com"}
        assert spec["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}, {"name": "shared"}]
        assert spec["serviceAccountName"] == account
        (container,) = spec["containers"]
        assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in container["env"]
        assert {"--log-level=debug", "--log-format=json"} < {*container["args"]}
        assert ("--force-delete-pods" in container["args"]) is (account == "ck-operator")
        assert {"name": "ca", "mountPath": "/etc/ssl/proxy", "readOnly": True} in container["volumeMounts"]
        assert {"name": "ca", "configMap": {"name": "ca"}} in spec["volumes"]
        assert container["imagePullPolicy"] == "Always"
        assert "example.com/role" in objects[f"ServiceAccount {account}"]["metadata"]["annotations"]
    operator, agent = pods(objects)
    (spread,) = operator["spec"]["topologySpreadConstraints"]
    selector = objects["Deployment closeknit-operator"]["spec"]["selector"]
    assert (spread["topologyKey"], spread["labelSelector"]) == ("topology.kubernetes.io/zone", selector)
    assert operator["spec"]["securityContext"]["fsGroup"] == 1000
    assert operator["spec"]["nodeSelector"] == {"node-role.kubernetes.io/control-plane": ""}
    assert {"--interval=30", "--root=/host"} < {*agent["spec"]["containers"][0]["args"]}
    assert objects["DaemonSet closeknit-agent"]["spec"]["updateStrategy"] == {"rollingUpdate": {"maxUnavailable": 3}}
    assert objects["Deployment closeknit-operator"]["spec"]["replicas"] == 3
    for kind in ("operator", "agent"):
        (subject,) = objects[f"ClusterRoleBinding closeknit-{kind}"]["subjects"]
        assert subject["name"] == f"ck-{kind}"
        monitor = objects[f"ServiceMonitor closeknit-{kind}"]
        assert (monitor["metadata"]["labels"]["release"], monitor["spec"]["endpoints"][0]["interval"]) == (
            "prometheus",
            "30s",
        )
    policies = [each for each in objects.values() if each["kind"] == "ValidatingAdmissionPolicy"]
    text = yaml.safe_dump(policies)
    assert f"system:serviceaccount:{NAMESPACE}:ck-operator" in text
    assert f"system:serviceaccount:{NAMESPACE}:ck-agent" in text
    assert "closeknit-system:closeknit-" not in text
    assert objects["ClusterTopology default"]["spec"] == {
        "levels": [{"name": "rack", "nodeLabel": "example.com/rack"}],
        "fabric": {"railIsolated": True, "levelBandwidthGBps": {"rack": 50}},
    }
    viewers = objects["ClusterRoleBinding closeknit-topology-viewer"]
    assert [each["name"] for each in viewers["subjects"]] == ["system:authenticated", "ci"]
    (rule,) = objects["ClusterRole closeknit-topology-viewer"]["rules"]
    assert rule["verbs"] == ["get", "list", "watch"]
    (planner,) = objects["ClusterRoleBinding closeknit-planner"]["subjects"]
    assert planner == {"kind": "Group", "name": "researchers", "apiGroup": "rbac.authorization.k8s.io"}
    rules = objects["ClusterRole closeknit-planner"]["rules"]
    listed = {(group, plural) for rule in rules for group in rule["apiGroups"] for plural in rule["resources"]}
    assert listed == {(kind.group, kind.plural) for kind in KINDS}
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list"}


def test_accounts_of_others_are_used_and_not_made(helm_program: Path) -> None:
    given = "--set=operator.serviceAccount.create=false,operator.serviceAccount.name=theirs"
    objects = named(render(helm_program, given))
    assert "ServiceAccount closeknit-agent" in objects
    assert not {"ServiceAccount theirs", "ServiceAccount closeknit-operator"} & objects.keys()
    assert pods(objects)[0]["spec"]["serviceAccountName"] == "theirs"


def test_a_user_is_fixed_but_where_the_namespace_gives_it(helm_program: Path) -> None:
    def users(*options: str) -> list[set[str]]:
        found = [each["spec"]["securityContext"] for each in pods(named(render(helm_program, *options)))]
        assert all(each["runAsNonRoot"] and each["seccompProfile"] for each in found)
        return [each.keys() & {"runAsUser", "runAsGroup"} for each in found]

    assert users() == [{"runAsUser", "runAsGroup"}] * 2
    assert users(OPENSHIFT) == [set(), set()]
    assert users(f"--values={CHART / 'ci/openshift-values.yaml'}") == [set(), set()]
    assert users(OPENSHIFT, "--set=operator.podSecurityContext.runAsUser=2000") == [{"runAsUser"}, set()]


@pytest.mark.parametrize(
    ("options", "classes"),
    [
        ((), None),
        (("--kube-version=v1.34.1-gke.100",), ["system-cluster-critical", "system-node-critical"]),
        (("--kube-version=v1.34.1-gke.100", "--set=priorityClassQuota.enabled=false"), None),
        (("--set=priorityClassQuota.enabled=true,agent.priorityClassName=mine",), ["system-cluster-critical"]),
        (("--set=priorityClassQuota.enabled=true,agent.enabled=false",), ["system-cluster-critical"]),
        (("--set=priorityClassQuota.enabled=true,agent.priorityClassName=,operator.priorityClassName=",), None),
    ],
)
def test_a_cluster_that_limits_priority_classes_gets_a_quota(
    helm_program: Path, options: tuple[str, ...], classes: list[str] | None
) -> None:
    quotas = [each["spec"] for each in render(helm_program, *options) if each["kind"] == "ResourceQuota"]
    found = [each["scopeSelector"]["matchExpressions"][0]["values"] for each in quotas]
    assert found == ([] if classes is None else [classes])
    assert all(each["hard"] == {"pods": "10000"} for each in quotas)


@pytest.mark.parametrize(
    ("options", "there"),
    [
        ((), False),
        ((f"--api-versions={MONITORS}ServiceMonitor",), True),
        ((f"--api-versions={MONITORS}ServiceMonitor", "--set=metrics.serviceMonitor.enabled=false"), False),
        (("--set=metrics.serviceMonitor.enabled=true",), True),
    ],
)
def test_a_monitor_is_there_where_the_cluster_knows_its_kind(
    helm_program: Path, options: tuple[str, ...], there: bool
) -> None:
    kinds = [each["kind"] for each in render(helm_program, *options)]
    assert kinds.count("ServiceMonitor") == (2 if there else 0)


def test_a_monitor_finds_its_service_whatever_name_argo_cd_gives_the_release(helm_program: Path) -> None:
    """Argo CD writes its Application's name into the Service's label app.kubernetes.io/instance."""
    objects = named(render(helm_program, "--set=metrics.serviceMonitor.enabled=true"))
    for component in ("operator", "agent"):
        labels = objects[f"Service closeknit-{component}-metrics"]["metadata"]["labels"]
        labels["app.kubernetes.io/instance"] = "of-the-application"
        wanted = objects[f"ServiceMonitor closeknit-{component}"]["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= labels.items()
        assert wanted["app.kubernetes.io/component"] == component


def test_levels_wait_for_their_kind(helm_program: Path) -> None:
    levels = "--set-json=clusterTopology.levels=" + '[{"name":"rack","nodeLabel":"example.com/rack"}]'

    def is_there(*options: str) -> bool:
        return any(each["kind"] == "ClusterTopology" for each in render(helm_program, *options))

    known = "--api-versions=closeknit.dev/v1alpha1/ClusterTopology"
    assert not is_there(levels)
    assert is_there(levels, known)
    assert is_there(levels, "--set=crds.install=false")
    assert not is_there(known)


def test_values_of_the_first_chart_still_work(helm_program: Path, tmp_path: Path) -> None:
    """As `helm get values` prints them of a release of cd40226; the registry alone had no need to be set."""
    first = {
        "crds": {"install": True},
        "image": {"registry": "registry.example.com", "tag": "0.1.0", "pullPolicy": "IfNotPresent"},
        "imagePullSecrets": ["pull"],
        "operator": {
            "image": {"repository": "closeknit/operator"},
            "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            "priorityClassName": "system-cluster-critical",
            "nodeSelector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
        },
        "agent": {
            "enabled": True,
            "image": {"repository": "closeknit/agent"},
            "runtimeClassName": "nvidia",
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
            "priorityClassName": "system-node-critical",
            "nodeSelector": {},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "affinity": {},
        },
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(first))
    operator, agent = pods(named(render(helm_program, f"--values={file}")))
    assert operator["spec"]["nodeSelector"] == {"a": "b"}
    assert agent["spec"]["runtimeClassName"] == "nvidia"


def test_what_is_written_of_the_values_is_of_today() -> None:
    stale = [path.name for path, text in chart_values.pages().items() if path.read_text() != text]
    assert not stale, "make generate writes them"


def test_every_value_is_described_and_has_a_type() -> None:
    schema = chart_values.schema()
    described = [each.path for each in chart_values.values()]
    assert len(described) == len({*described}) == (CHART / "values.yaml").read_text().count("# -- ")
    for value in chart_values.values():
        at: Object = schema
        for name in value.path.split("."):
            at = at["properties"][name]
        assert "type" in at or "enum" in at, value.path


def test_no_group_of_values_may_be_missing() -> None:
    """One that a chart before did not have is missing after `helm upgrade --reuse-values`, and templates read it."""
    strict = yaml.safe_load((CHART / "files/values.schema.yaml").read_text())
    groups = {value.path.rpartition(".")[0] for value in chart_values.values()} - {"", "global"}
    optional = []
    for group in sorted(groups):
        *folders, name = group.split(".")
        at = strict
        for folder in folders:
            at = at["properties"][folder]
            at = strict["definitions"][at["$ref"].rpartition("/")[2]] if "$ref" in at else at
        if name not in at.get("required", ()):
            optional.append(group)
    assert not optional


def test_what_is_empty_may_be_null(helm_program: Path) -> None:
    """What is written where a value's lines are commented out: as good as empty."""
    needed = ("image.registry", "image.tag")
    defaults = {value.path: value.default for value in chart_values.values() if value.path not in needed}
    empty = [path for path, default in defaults.items() if default in ([], {}, "")]
    assert {"rbac.planners", "metrics.certificate.secretName", "metrics.dashboards.annotations"} <= {*empty}
    nulls = render(helm_program, *(f"--set={path}=null" for path in empty))
    assert named(nulls) == named(render(helm_program))


def test_names_that_are_suggested_are_names_of_values() -> None:
    """What x-instead says to set begins with a value of ours, and holds no name that is one no more."""
    strict = yaml.safe_load((CHART / "files/values.schema.yaml").read_text())
    paths = {each.path for each in chart_values.values()}
    known = {".".join(path.split(".")[:depth]) for path in paths for depth in range(1, 6)} | {
        path.split(".")[-1] for path in paths
    }
    for other, ours in strict["x-instead"].items():
        words = [word.rstrip(",") for word in ours.split()]
        assert words[0] in known, other
        assert not [word for word in words if "." in word and word not in known]
        assert other == other.lower()
        assert other not in paths, f"{other} is a value"


def test_arguments_are_judged_by_the_options_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    known = yaml.safe_load((CHART / "files/values.schema.yaml").read_text())["x-arguments"]
    with pytest.raises(SystemExit):
        operator(["--help"])
    there = {word.strip("[],") for word in capsys.readouterr().out.split() if word.lstrip("[").startswith("--")}
    assert {*known["operator"]} == there - {"--help", "--version"}
    with pytest.raises(SystemExit):
        app(["--help"])
    there = {word for word in capsys.readouterr().out.split() if word.startswith("--")}
    assert {*known["agent"]} == there - {"--help"}


def test_the_interval_is_the_programs_own() -> None:
    (value,) = [each.default for each in chart_values.values() if each.path == "agent.intervalSeconds"]
    assert value == READING_S


def test_a_certificate_is_served_with_and_checked(helm_program: Path) -> None:
    def served(*options: str) -> tuple[set[str], list[Object], set[str]]:
        """Secrets that operator and agents mount for it, how Prometheus checks them, and what cert-manager is given."""
        objects = named(render(helm_program, "--set=metrics.serviceMonitor.enabled=true", *options))
        mounted = set()
        for template in pods(objects):
            (container,) = template["spec"]["containers"]
            given = [each for each in container["args"] if each.startswith("--metrics-certificate=")]
            volumes = [each for each in template["spec"]["volumes"] if each["name"] == "metrics-certificate"]
            paths = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "metrics-certificate"]
            assert given == [f"--metrics-certificate={path}" for path in paths]
            mounted |= {each["secret"]["secretName"] for each in volumes}
            assert {container[probe]["httpGet"]["scheme"] for probe in PROBES} == {"HTTPS"}
        endpoints = [
            objects[f"ServiceMonitor closeknit-{kind}"]["spec"]["endpoints"][0] for kind in ("operator", "agent")
        ]
        assert {each["scheme"] for each in endpoints} == {"https"}
        managed = {name for name, each in objects.items() if each["apiVersion"] == "cert-manager.io/v1"}
        return mounted, [each["tlsConfig"] for each in endpoints], managed

    def checked(secret: str) -> list[Object]:
        names = (f"closeknit-{kind}-metrics.{NAMESPACE}.svc" for kind in ("operator", "agent"))
        return [{"ca": {"secret": {"name": secret, "key": "ca.crt"}}, "serverName": name} for name in names]

    manager = "--set=metrics.certificate.certManager.enabled=true"
    issuer = "--set=metrics.certificate.certManager.issuerRef.name=internal"
    both = {"Certificate closeknit-metrics", "Issuer closeknit-metrics"}
    assert served() == (set(), [{"insecureSkipVerify": True}] * 2, set())
    assert served("--set=metrics.certificate.secretName=mine") == ({"mine"}, checked("mine"), set())
    assert served(manager) == ({"closeknit-metrics"}, checked("closeknit-metrics"), both)
    assert served(manager, issuer)[2] == {"Certificate closeknit-metrics"}
    assert served("--set=metrics.serviceMonitor.tlsConfig.serverName=x")[1] == [{"serverName": "x"}] * 2


def test_alerts_and_dashboards_are_those_of_the_files(helm_program: Path) -> None:
    known = f"--api-versions={MONITORS}PrometheusRule"
    objects = named(render(helm_program, known, "--set=metrics.dashboards.enabled=true"))
    files = [yaml.safe_load(path.read_text()) for path in sorted((CHART / "files/rules").glob("*.yaml"))]
    assert objects["PrometheusRule closeknit"]["spec"]["groups"] == [each for file in files for each in file["groups"]]
    dashboards = {path.name: path.read_text() for path in (CHART / "files/dashboards").glob("*.json")}
    assert objects.get("ConfigMap closeknit-dashboards", {}).get("data", {}) == dashboards
    assert "PrometheusRule closeknit" not in named(render(helm_program))
    elsewhere = "--set=metrics.prometheusRule.runbookUrl=https://docs.example.com/runbook"
    (rule, *_) = named(render(helm_program, known, elsewhere))["PrometheusRule closeknit"]["spec"]["groups"][0]["rules"]
    assert rule["annotations"]["runbook_url"] == "https://docs.example.com/runbook#closeknitnoleader"


def test_helm_3_does_and_says_the_same(helm_program: Path, tmp_path: Path) -> None:
    (other,) = bring((HELM_3,)).values()
    # Which Kubernetes there is, each would say by itself; the release's Helm is in no object.
    options = (
        f"--values={CHART / 'ci/everything-values.yaml'}",
        "--kube-version=1.36.0",
        f"--api-versions={MONITORS}X",
    )
    assert render(other, *options) == render(helm_program, *options)
    said = []
    for program in (helm_program, other):
        for name in ("names of other charts", "levels of the network", "memory without a unit", "pull policy"):
            file = tmp_path / "values.yaml"
            file.write_text(yaml.safe_dump({"image": {"registry": "registry.example.com"}, **WRONG[name][0]}))
            with pytest.raises(HelmError) as refusal:
                helm(program, "template", "closeknit", str(CHART), "--kube-version=1.36.0", f"--values={file}")
            said.append({line for line in str(refusal.value).splitlines() if line.startswith("- ")})
    assert said[:4] == said[4:]
    assert all(said)


@pytest.mark.parametrize(
    ("options", "sentence", "is_said"),
    [
        (("--namespace=default",), "WARNING: no job can run in the namespace default", True),
        ((), "WARNING: no job can run in the namespace default", False),
        (("--set=operator.deviceTaints=NoSchedule",), "It keeps the DeviceTaintRules of unhealthy GPUs", True),
        ((), "It keeps the DeviceTaintRules of unhealthy GPUs", False),
        (("--set=capacity.enabled=true",), "It keeps the placeholder Pods of jobs that wait", True),
        ((), "It keeps the placeholder Pods of jobs that wait", False),
    ],
)
def test_the_notes_say_what_an_installation_brings(
    helm_program: Path, options: tuple[str, ...], sentence: str, *, is_said: bool
) -> None:
    """The operator's policy lets no job run in its own namespace; and nobody takes a taint back after an uninstall."""
    rehearsal = ("--dry-run=client", f"--namespace={NAMESPACE}", REGISTRY, *options)
    said = helm(helm_program, "install", "closeknit", str(CHART), *rehearsal)
    assert (sentence in said) == is_said


def test_a_topology_takes_what_its_kind_takes() -> None:
    """Names at every depth, for a field that the chart lets through and the kind does not know would be dropped."""

    def names(schema: Object) -> Any:
        if "properties" in schema:
            return {name: names(each) for name, each in schema["properties"].items()}
        inner = schema.get("items") or schema.get("additionalProperties")
        return names(inner) if isinstance(inner, dict) else None

    crd = yaml.safe_load((CHART / "files/crds/clustertopologies.yaml").read_text())
    kind = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert names(chart_values.schema()["properties"]["clusterTopology"]) == names(kind)


def test_the_page_of_installing_quotes_what_is_said(helm_program: Path) -> None:
    page = (chart_values.ROOT / "docs/install.md").read_text()
    _, _, rest = page.partition("closeknit refuses these values:\n")
    quoted = rest.partition("```")[0]
    with pytest.raises(HelmError) as refusal:
        render(helm_program, "--set=replicaCount=3,operator.resorces.x=1,operator.resources.limits.memory=1GB")
    assert quoted.count("\n- ") == 2
    assert quoted in str(refusal.value)
