"""Templates whose Pods an API server, or closeknit's own admission, refuses: `plan` says so without a cluster.

tests/cluster/test_plan_agrees.py asks a real API server about the same ones.
"""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from closeknit.cli.input import pod_spec
from closeknit.cli.main import app
from harness import pod_fields

ROOT = Path(__file__).parents[4]
CLUSTER = ROOT / "examples" / "cluster.yaml"
ADMITTED = ROOT / "helm/closeknit/templates/admission"

CONTAINER = "spec.template.spec.containers[0]"
# What is changed in the container, and beside it in the PodSpec, and where and in what words it is refused.
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no image": ({"image": None}, {}, f"{CONTAINER}.image: is required"),
    "an empty image": ({"image": ""}, {}, f"{CONTAINER}.image: is required"),
    "cores with a unit": (
        {"resources": {"requests": {"cpu": "8 cores"}}},
        {},
        f"{CONTAINER}.resources.requests.cpu: is no "
        "quantity: '8 cores' is not a quantity such as 8, 500m, 80Gi or 1.5T",
    ),
    "memory in gigabytes": (
        {"resources": {"limits": {"memory": "64GB"}}},
        {},
        f"{CONTAINER}.resources.limits.memory: is no ",
    ),
    "less than nothing": (
        {"resources": {"requests": {"cpu": "-1"}}},
        {},
        f"{CONTAINER}.resources.requests.cpu: is no ",
    ),
    "more than the limit": (
        {"resources": {"requests": {"cpu": 8}, "limits": {"cpu": "4"}}},
        {},
        f"{CONTAINER}.resources.requests.cpu: is 8, above its limit of 4",
    ),
    "a resource without a domain": (
        {"resources": {"limits": {"gpu": 1}}},
        {},
        f"{CONTAINER}.resources.limits.gpu: is no ",
    ),
    "a resource by a number": (
        {"resources": {"limits": {1: 2}}},
        {},
        f"{CONTAINER}.resources.limits.1: is no resource",
    ),
    "more than a limit that is null": (
        {"resources": {"requests": {"cpu": 8}, "limits": {"cpu": None}}},
        {},
        f"{CONTAINER}.resources.requests.cpu: is 8, above its limit of 0",
    ),
    "half a device": (
        {"resources": {"limits": {"example.com/fpga": "500m"}}},
        {},
        f"{CONTAINER}.resources.limits.example.com/fpga: is 500m; of such a resource there are whole",
    ),
    "a device without its limit": (
        {"resources": {"requests": {"example.com/fpga": 1}}},
        {},
        f"{CONTAINER}.resources.requests.example.com/fpga: is 1, and its limit is not set",
    ),
    "a command that is one text": (
        {"command": "python train.py"},
        {},
        f"{CONTAINER}.command: is 'python train.py'; should be a list",
    ),
    "a number among the arguments": ({"args": ["--steps", 8]}, {}, f"{CONTAINER}.args[1]: is 8; write it as a string"),
    "variables as a map": ({"env": {"A": "b"}}, {}, f"{CONTAINER}.env: is an object"),
    "a value and its source": (
        {"env": [{"name": "A", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
        {},
        f"{CONTAINER}.env[0]: has both value and valueFrom",
    ),
    "a name in capitals": ({"name": "Trainer"}, {}, f"{CONTAINER}.name: is 'Trainer'; should be at most 63 lower-case"),
    "a pull policy": (
        {"imagePullPolicy": "always"},
        {},
        f"{CONTAINER}.imagePullPolicy: is 'always'; should be Always, IfNotPresent or Never",
    ),
    "a port too high": ({"ports": [{"containerPort": 70000}]}, {}, f"{CONTAINER}.ports[0].containerPort: is 70000"),
    "a port without its number": (
        {"ports": [{"name": "http"}]},
        {},
        f"{CONTAINER}.ports[0].containerPort: is required",
    ),
    "a mount of nothing": (
        {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        {},
        f"{CONTAINER}.volumeMounts[0].name: is 'data', and no volume has that name",
    ),
    "a path mounted twice": (
        {"volumeMounts": [{"name": "a", "mountPath": "/data"}, {"name": "a", "mountPath": "/data"}]},
        {"volumes": [{"name": "a", "emptyDir": {}}]},
        f"{CONTAINER}.volumeMounts[1].mountPath: is ",
    ),
    "a user in words": (
        {"securityContext": {"runAsUser": "root"}},
        {},
        f"{CONTAINER}.securityContext.runAsUser: is 'root'; should be an integer",
    ),
    "a volume of two kinds": (
        {},
        {"volumes": [{"name": "a", "emptyDir": {}, "configMap": {"name": "b"}}]},
        "spec.template.spec.volumes[0]: has configMap and emptyDir",
    ),
    "two volumes of one name": (
        {},
        {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]},
        "spec.template.spec.volumes[1].name: is 'a', and so is another one's",
    ),
    "a size in gigabytes": (
        {},
        {"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "64GB"}}]},
        "spec.template.spec.volumes[0].emptyDir.sizeLimit: is no quantity",
    ),
    "two containers of one name": (
        {},
        {"initContainers": [{"name": "trainer", "image": "i"}]},
        f"{CONTAINER}.name: is 'trainer', and so is another one's",
    ),
    "seconds in words": (
        {},
        {"terminationGracePeriodSeconds": "30s"},
        "spec.template.spec.terminationGracePeriodSeconds: is '30s'; should be an integer",
    ),
    "an effect": (
        {},
        {"tolerations": [{"key": "a", "effect": "NoScedule"}]},
        "spec.template.spec.tolerations[0].effect: is 'NoScedule'; should be ",
    ),
    "a secret by its name": (
        {},
        {"imagePullSecrets": ["registry"]},
        "spec.template.spec.imagePullSecrets[0]: is 'registry'; should be an object",
    ),
    "a label of a node": ({}, {"nodeSelector": {"a b": "c"}}, "spec.template.spec.nodeSelector.a b: is 'c'; key and"),
}
# An API server only warns of these, and leaves them out.
UNKNOWN: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "misspelt": ({"enviroment": []}, {}, f"{CONTAINER}.enviroment: unknown field; "),
    "nearly": ({"resource": {}}, {}, f"{CONTAINER}.resource: unknown field; did you mean resources?"),
    "in its own place": (
        {"nodeSelector": {}},
        {},
        f"{CONTAINER}.nodeSelector: unknown field; allowed: args, command, ",
    ),
    "deep inside": (
        {"ports": [{"containerPort": 1, "hostport": 1}]},
        {},
        f"{CONTAINER}.ports[0].hostport: unknown field; did you mean hostPort?",
    ),
}
NOT_ADMITTED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "hostPath": ({}, {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}, "spec.template.spec.volumes[0].hostPath"),
    "nfs": ({}, {"volumes": [{"name": "a", "nfs": {"path": "/", "server": "s"}}]}, "spec.template.spec.volumes[0].nfs"),
    "privileged": ({"securityContext": {"privileged": True}}, {}, f"{CONTAINER}.securityContext.privileged"),
    "escalation": (
        {"securityContext": {"allowPrivilegeEscalation": True}},
        {},
        f"{CONTAINER}.securityContext.allowPrivilegeEscalation",
    ),
    "a capability": (
        {"securityContext": {"capabilities": {"add": ["IPC_LOCK", "SYS_ADMIN"]}}},
        {},
        f"{CONTAINER}.securityContext.capabilities.add[1]",
    ),
    "host network": ({}, {"hostNetwork": True}, "spec.template.spec.hostNetwork"),
    "host processes": ({}, {"hostPID": True}, "spec.template.spec.hostPID"),
    "a port of the host": ({"ports": [{"containerPort": 80, "hostPort": 80}]}, {}, f"{CONTAINER}.ports[0].hostPort"),
    "another scheduler": ({}, {"schedulerName": "volcano"}, "spec.template.spec.schedulerName"),
    "Pod affinity": ({}, {"affinity": {"podAffinity": {}}}, "spec.template.spec.affinity.podAffinity"),
    "spread": ({}, {"topologySpreadConstraints": []}, "spec.template.spec.topologySpreadConstraints"),
}
TAKEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing but an image": ({}, {}),
    "what is null is not set": (
        {"command": None, "resources": {"limits": None}},
        {"volumes": None, "hostNetwork": None},
    ),
    "an amount that is null": ({"resources": {"requests": {"cpu": None}, "limits": {"cpu": 4}}}, {}),
    "keys that are no strings": ({}, {"nodeSelector": {7: "a"}}),
    "numbers as quantities": (
        {"resources": {"requests": {"cpu": 8, "memory": 68719476736}, "limits": {"cpu": 8.5}}},
        {},
    ),
    "other spellings": (
        {"resources": {"requests": {"cpu": "1e1", "memory": "1.5Ti", "ephemeral-storage": "100M"}}},
        {},
    ),
    "huge pages": (
        {"resources": {"requests": {"memory": "1Gi"}, "limits": {"hugepages-2Mi": "2Gi", "memory": "1Gi"}}},
        {},
    ),
    "a volume without a word": ({}, {"volumes": [{"name": "a"}]}),
    "a device": ({"resources": {"limits": {"example.com/fpga": 2}}}, {}),
    "a probe by name and number": (
        {
            "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}],
            "readinessProbe": {"httpGet": {"port": "http"}},
            "livenessProbe": {"tcpSocket": {"port": 80}},
        },
        {},
    ),
    "claims, maps and secrets": (
        {
            "volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "a"}],
            "envFrom": [{"secretRef": {"name": "s"}}],
        },
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]},
    ),
    "what the policy spares": (
        {"securityContext": {"privileged": False, "capabilities": {"add": ["IPC_LOCK"]}}},
        {
            "hostNetwork": False,
            "schedulerName": "default-scheduler",
            "nodeSelector": {"a": ""},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
        },
    ),
}


def job(container: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    made = {"name": "trainer", "image": "registry.example/train:1", **container}
    template = {"spec": {"containers": [made], **copy.deepcopy(spec)}}
    metadata = {"name": "train", "namespace": "default"}
    return {
        "apiVersion": "closeknit.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": metadata,
        "spec": {"gpus": 1, "template": template},
    }


def said(folder: Path, asked: dict[str, Any], cluster: Path = CLUSTER, command: str = "plan") -> tuple[int, str]:
    (folder / "job.yaml").write_text(yaml.safe_dump(asked))
    result = CliRunner().invoke(app, [command, "-f", str(folder / "job.yaml"), "--cluster", str(cluster)])
    return result.exit_code, result.stderr.replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("container", "spec", "words"), [*REFUSED.values(), *UNKNOWN.values()], ids=[*REFUSED, *UNKNOWN]
)
def test_what_an_api_server_refuses_is_refused_with_its_line(
    tmp_path: Path, container: dict[str, Any], spec: dict[str, Any], words: str
) -> None:
    for command in ("plan", "env"):
        code, error = said(tmp_path, job(container, spec), command=command)
        assert (code, error.count("\n")) == (2, 1)
        assert re.match(rf"closeknit: job.yaml:\d+: TrainingJob default/train: {re.escape(words)}", error), error


@pytest.mark.parametrize(("container", "spec", "where"), NOT_ADMITTED.values(), ids=NOT_ADMITTED)
def test_what_admission_refuses_is_refused_unless_it_is_lifted(
    tmp_path: Path, container: dict[str, Any], spec: dict[str, Any], where: str
) -> None:
    code, error = said(tmp_path, job(container, spec))
    assert (code, f"TrainingJob default/train: {where}: is not allowed in a TrainingJob template; " in error) == (
        2,
        True,
    )
    labels = {"closeknit.dev/unrestricted-templates": "true"}
    lifted = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}
    (tmp_path / "cluster.yaml").write_text(f"{CLUSTER.read_text()}---\n{yaml.safe_dump(lifted)}")
    assert said(tmp_path, job(container, spec), tmp_path / "cluster.yaml")[0] == 0


@pytest.mark.parametrize(
    ("metadata", "where"),
    [
        ({"labels": {"kubernetes.io/arch": "arm64"}}, "labels.kubernetes.io/arch: has a reserved prefix"),
        ({"annotations": {"container.apparmor.security.beta.kubernetes.io/a": "unconfined"}},
         "annotations.container.apparmor.security.beta.kubernetes.io/a: has a reserved prefix"),
        ({"labels": {"team": "a b"}}, "labels.team: is 'a b'; a label has at most 63"),
        ({"labels": {"-team": "a"}}, "labels.-team: is no key"),
    ],
)  # fmt: skip
def test_labels_that_no_pod_may_have(tmp_path: Path, metadata: dict[str, Any], where: str) -> None:
    asked = job({}, {})
    asked["spec"]["template"]["metadata"] = metadata
    code, error = said(tmp_path, asked)
    assert (code, f"spec.template.metadata.{where}" in error) == (2, True)


@pytest.mark.parametrize(("container", "spec"), TAKEN.values(), ids=TAKEN)
def test_what_an_api_server_takes_is_taken(tmp_path: Path, container: dict[str, Any], spec: dict[str, Any]) -> None:
    code, error = said(tmp_path, job(container, spec))
    assert (code in (0, 3), error) == (True, "")  # 3: the machines of the example have no room for it


def test_the_template_of_parameter_servers_is_read_as_well(tmp_path: Path) -> None:
    asked = yaml.safe_load((ROOT / "examples/tensorflow-servers.yaml").read_text())
    del asked["spec"]["parameterServers"]["template"]["spec"]["containers"][0]["image"]
    code, error = said(tmp_path, asked)
    assert (code, "spec.parameterServers.template.spec.containers[0].image: is required" in error) == (2, True)


def test_a_priority_class_that_the_cluster_lacks_is_told(tmp_path: Path) -> None:
    asked = job({}, {})
    asked["spec"]["priorityClassName"] = "hihg"
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(asked))
    known = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1}
    (tmp_path / "cluster.yaml").write_text(f"{CLUSTER.read_text()}---\n{yaml.safe_dump(known)}")
    arguments = ["plan", "-f", str(tmp_path / "job.yaml"), "-o", "json", "--cluster"]
    refused = CliRunner().invoke(app, [*arguments, str(tmp_path / "cluster.yaml")])
    assert (refused.exit_code, json.loads(refused.stdout)["pending"]["message"]) == (
        3,
        "needs PriorityClass hihg; this cluster has high: name one of these in spec.priorityClassName, or have an "
        "administrator create it",
    )
    unknown = CliRunner().invoke(app, [*arguments, str(CLUSTER)])
    assert "whether there is a PriorityClass hihg" in json.loads(unknown.stdout)["notChecked"]


def test_the_fields_are_those_of_the_client_that_is_installed() -> None:
    assert pod_fields.text() == pod_fields.FILE.read_text(), "run python -m harness.pod_fields"


def test_what_is_admitted_is_what_the_policy_says() -> None:
    text = " ".join((ADMITTED / "_admitted.tpl").read_text().split())
    for variable, ours in (("podKeys", pod_spec.POD_FIELDS), ("volumeKeys", pod_spec.VOLUME_FIELDS)):
        (listed,) = re.findall(rf"name: {variable} expression: >- \[(.*?)\]", text)
        assert set(re.findall(r"'(\w+)'", listed)) == ours
    judged = (ADMITTED / "trainingjob.yaml").read_text()
    for pattern in (pod_spec._RESERVED_LABEL, pod_spec._RESERVED_ANNOTATION):
        assert f"'^{pattern.pattern}'" in judged
    for annotation in pod_spec._SPARED_ANNOTATIONS:
        assert f"'{annotation}'" in judged
