"""Which Pod templates no Pod can be made of, in which words."""

from typing import Any

import pytest

from closeknit.api.affinity import REQUIRED
from closeknit.api.objects import TrainingJob
from closeknit.launch.template import check_template

MAIN = {"name": "main", "image": "pytorch"}


def job(spec: object, metadata: object = None) -> TrainingJob:
    template = {"spec": spec} if metadata is None else {"metadata": metadata, "spec": spec}
    return TrainingJob.parse_strictly(
        {"metadata": {"name": "train", "uid": "job-uid"}, "spec": {"gpus": 4, "template": template}}
    )


def trainer(**fields: object) -> dict[str, object]:
    return {"containers": [{**MAIN, **fields}]}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": [MAIN]}, id="one container of any name"),
        pytest.param({"containers": [MAIN, {"name": "trainer"}]}, id="two, one of them called trainer"),
        pytest.param({"containers": [MAIN], "restartPolicy": "Never"}, id="restartPolicy Never"),
        pytest.param({"containers": [MAIN], "volumes": None, "tolerations": None, "affinity": None}, id="nulls"),
        pytest.param({"containers": [MAIN], "hostname": "", "nodeName": ""}, id="empty strings, which mean absent"),
        pytest.param(trainer(resources={"limits": {"cpu": 8, "memory": "1Ti"}}), id="CPUs and memory"),
        pytest.param(
            trainer(resources={"limits": {f"example.com/{number}": 1 for number in range(64)}}),
            id="as many resources as are looked at",
        ),
        pytest.param(trainer(env=[{"name": "NCCL_DEBUG", "value": "INFO"}]), id="a variable that we would set"),
        pytest.param({"containers": [MAIN], "schedulingGates": [{"name": "example.com/quota"}]}, id="a user's gate"),
    ],
)
def test_a_usable_template_passes(spec: dict[str, Any]) -> None:
    assert check_template(job(spec)) is None


ASKS_ITSELF = "closeknit asks for the job's GPUs itself: remove it and set spec.gpus"
AFFINITY = f"spec.template.spec.affinity.nodeAffinity.{REQUIRED}"


def asking(field: str, resource: str) -> dict[str, object]:
    return {"resources": {field: {resource: 1}}}


def required(rule: object) -> dict[str, object]:
    return {"containers": [MAIN], "affinity": {"nodeAffinity": {REQUIRED: rule}}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {},
            "spec.template.spec.containers has no container; give it the one that trains",
            id="no containers",
        ),
        pytest.param(
            {
                **trainer(**asking("requests", "a.b/1")),
                "initContainers": [{"name": "i", **asking("limits", f"c.d/{number}")} for number in range(63)],
                "resources": {"limits": {"cpu": 1, "a.b/1": 1}},
            },
            "spec.template.spec asks for 65 different resources, and at most 64 are looked at; leave some out",
            id="more resources than are looked at",
        ),
        pytest.param(
            {"containers": "x"},
            'spec.template.spec.containers is "x"; it must be a list',
            id="containers is a word",
        ),
        pytest.param(
            {"containers": [7]},
            "spec.template.spec.containers[0] is the number 7; it must be an object",
            id="a container is a number",
        ),
        pytest.param(
            {"containers": [{"image": "pytorch"}]},
            "spec.template.spec.containers[0].name is missing; give it a name",
            id="a container without a name",
        ),
        pytest.param(
            {"containers": [MAIN, {"name": "sidecar"}]},
            "spec.template.spec.containers has 2 containers (main, sidecar) and none is called trainer; "
            "call the one that gets the GPUs trainer",
            id="two containers and none called trainer",
        ),
        pytest.param(
            trainer(env=[{"name": "BLOB", "value": "x" * (256 * 1024 - 84)}]),
            "spec.template.spec has 262145 bytes as JSON, more than the 262144 that fit beside the job's status; "
            "move what is large into a ConfigMap",
            id="one byte too large",
        ),
        pytest.param(
            {"containers": [{"name": f"c{index}"} for index in range(9)]},
            "spec.template.spec.containers has 9 containers (c0, c1, c2, c3, c4, ...) and none is called trainer; "
            "call the one that gets the GPUs trainer",
            id="nine containers",
        ),
        pytest.param(
            trainer(**asking("limits", "nvidia.com/gpu")),
            f"spec.template.spec.containers[0].resources.limits asks for nvidia.com/gpu; {ASKS_ITSELF}",
            id="asks for GPUs itself",
        ),
        pytest.param(
            trainer(resources={"limits": {"vpc.amazonaws.com/efa": 0}, "requests": {"vpc.amazonaws.com/efa": "0"}}),
            "spec.template.spec asks for none of vpc.amazonaws.com/efa, which closeknit gives to Pods that talk over "
            "RDMA: remove it, and set network.rdma: Disabled for a job without",
            id="asks for no NIC",
        ),
        pytest.param(
            trainer(**asking("limits", "nvidia.com/rail0")),
            "spec.template.spec.containers[0].resources.limits asks for nvidia.com/rail0; GPUs of any name under "
            "nvidia.com/ closeknit asks for itself, and functions of NICs where ClusterTopology default declares them: "
            "remove it, set spec.gpus, and have an administrator add such functions to spec.fabric.sriovNetworks",
            id="asks for functions that are called as GPUs are",
        ),
        pytest.param(
            {"containers": [MAIN], "initContainers": [{"name": "i", **asking("requests", "nvidia.com/gpu.shared")}]},
            f"spec.template.spec.initContainers[0].resources.requests asks for nvidia.com/gpu.shared; {ASKS_ITSELF}",
            id="an init container asks for a shared GPU",
        ),
        pytest.param(
            {"containers": [MAIN], **asking("limits", "nvidia.com/gpu")},
            f"spec.template.spec.resources.limits asks for nvidia.com/gpu; {ASKS_ITSELF}",
            id="the Pod as a whole asks for GPUs",
        ),
        pytest.param(
            {"containers": [MAIN], "restartPolicy": "OnFailure"},
            'spec.template.spec.restartPolicy is "OnFailure"; a rank that is restarted alone never meets the others '
            "again: set Never, or leave it out",
            id="restartPolicy OnFailure",
        ),
        pytest.param(
            {"containers": [MAIN], "nodeName": "gpu-7"},
            'spec.template.spec.nodeName is "gpu-7", but closeknit chooses the nodes; remove it',
            id="nodeName",
        ),
        pytest.param(
            {"containers": [MAIN], "hostname": "me"},
            'spec.template.spec.hostname is "me", but ranks find each other by host names that closeknit gives; '
            "remove it",
            id="hostname",
        ),
        pytest.param(
            {"containers": [MAIN], "priorityClassName": "high"},
            'spec.template.spec.priorityClassName is "high", but the job\'s own priority is spec.priorityClassName; '
            "set it there",
            id="priorityClassName",
        ),
        pytest.param(
            {"containers": [MAIN], "volumes": [{"name": "closeknit-shm", "emptyDir": {}}]},
            "spec.template.spec.volumes[0].name is closeknit-shm, a name that closeknit uses itself; choose another",
            id="our volume's name",
        ),
        pytest.param(
            {"containers": [{**MAIN, "name": "trainer"}, {"name": "closeknit-preflight"}]},
            "spec.template.spec.containers[1].name is closeknit-preflight, a name that closeknit uses itself; "
            "choose another",
            id="our container's name",
        ),
        pytest.param(
            {"containers": [MAIN], "initContainers": [{"name": "closeknit-ssh"}]},
            "spec.template.spec.initContainers[0].name is closeknit-ssh, a name that closeknit uses itself; "
            "choose another",
            id="our init container's name",
        ),
        pytest.param(
            {"containers": [MAIN], "resourceClaims": [{"name": "nic"}, {"name": "gpus"}]},
            "spec.template.spec.resourceClaims[1].name is gpus, a name that closeknit uses itself; choose another",
            id="our claim's name",
        ),
        pytest.param(
            {"containers": [MAIN], "nodeSelector": {"pool": "a", "example.com/gpu": True}},
            "spec.template.spec.nodeSelector[example.com/gpu] is true; write it as a string, in quotes",
            id="a label to select is a bool",
        ),
        pytest.param(
            {"containers": [MAIN], "nodeSelector": {"pool": None}},
            "spec.template.spec.nodeSelector[pool] is missing; write it as a string, in quotes",
            id="a label to select has no value",
        ),
        pytest.param(
            {"containers": [MAIN], "nodeSelector": ["pool"]},
            "spec.template.spec.nodeSelector is a list; it must be an object",
            id="nodeSelector is a list",
        ),
        pytest.param(
            {"containers": [MAIN], "nodeSelector": {f"pool-{number}": "a" for number in range(65)}},
            "spec.template.spec.nodeSelector has 65 entries, and at most 64 are looked at; leave some out",
            id="65 labels are selected",
        ),
        pytest.param(
            {"containers": [MAIN], "tolerations": [{"key": f"taint-{number}"} for number in range(65)]},
            "spec.template.spec.tolerations has 65 entries, and at most 64 are looked at; leave some out",
            id="65 tolerations",
        ),
        pytest.param(
            {"containers": [MAIN], "volumes": [{"name": f"v{number}", "ephemeral": {}} for number in range(65)]},
            "spec.template.spec.volumes has 65 claims, and at most 64 are looked at; leave some out",
            id="65 claims",
        ),
        pytest.param(
            {"containers": [MAIN], "nodeSelector": {"pool": "a" * 64}},
            "spec.template.spec.nodeSelector[pool] has 64 characters, and at most 63 are taken; shorten it",
            id="a label's value that no node has",
        ),
        pytest.param(
            {"containers": [MAIN], "nodeSelector": {"a" * 400: ""}},
            f"the key of spec.template.spec.nodeSelector[{'a' * 60}...] has 400 characters, and at most 317 are taken; "
            "shorten it",
            id="a label's key that no node has",
        ),
        pytest.param(
            {"containers": [MAIN], "tolerations": [{"key": "x"}, {"key": "x", "value": "a" * 1000}]},
            "spec.template.spec.tolerations[1].value has 1000 characters, and at most 63 are taken; shorten it",
            id="a toleration of what no taint has",
        ),
        pytest.param(
            trainer(resources={"limits": {f"example.com/{'a' * 400}": 1}}),
            f"resource example.com/{'a' * 48}... of spec.template.spec has 412 characters, and at most 317 are taken; "
            "shorten it",
            id="a resource of a name that none has",
        ),
        pytest.param(
            {"containers": [MAIN], "tolerations": {"key": "x"}},
            "spec.template.spec.tolerations is an object; it must be a list",
            id="tolerations is an object",
        ),
        pytest.param(
            trainer(env={"A": "1"}),
            "spec.template.spec.containers[0].env is an object; it must be a list",
            id="env is an object",
        ),
        pytest.param(
            trainer(env=[{"name": "EPOCHS", "value": 3}]),
            "spec.template.spec.containers[0].env[0].value is the number 3; write it as a string, in quotes",
            id="a variable's value is a number",
        ),
        pytest.param(
            trainer(env=[{"value": "3"}]),
            "spec.template.spec.containers[0].env[0].name is missing; give it a name",
            id="a variable without a name",
        ),
        pytest.param(
            trainer(volumeMounts=[{"name": "data"}]),
            "spec.template.spec.containers[0].volumeMounts[0].mountPath is missing; give it a path",
            id="a mount without a path",
        ),
        pytest.param(
            trainer(resources=[]),
            "spec.template.spec.containers[0].resources is a list; it must be an object",
            id="resources is a list",
        ),
        pytest.param(
            trainer(securityContext={"capabilities": {"add": "IPC_LOCK"}}),
            'spec.template.spec.containers[0].securityContext.capabilities.add is "IPC_LOCK"; it must be a list',
            id="capabilities.add is a word",
        ),
        pytest.param(
            required({"nodeSelectorTerms": []}),
            f"{AFFINITY}.nodeSelectorTerms has no term; give it one, or remove the rule",
            id="a required affinity without terms",
        ),
        pytest.param(
            required({}),
            f"{AFFINITY}.nodeSelectorTerms has no term; give it one, or remove the rule",
            id="a required affinity of nothing",
        ),
        pytest.param(
            required({"nodeSelectorTerms": [{"matchFields": True}]}),
            f"{AFFINITY}.nodeSelectorTerms[0].matchFields is true; it must be a list",
            id="matchFields is a boolean",
        ),
    ],
)
def test_an_unusable_template_is_refused_with_place_finding_and_advice(spec: dict[str, Any], message: str) -> None:
    assert check_template(job(spec)) == message


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        pytest.param(
            {"labels": {"closeknit.dev/job": "other"}},
            "spec.template.metadata.labels has closeknit.dev/job, whose prefix is reserved; remove it",
            id="our label",
        ),
        pytest.param(
            {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
            "spec.template.metadata.labels has kueue.x-k8s.io/queue-name, whose prefix is reserved; remove it",
            id="Kueue's label, which belongs on the job",
        ),
        pytest.param(
            {"annotations": {"x.closeknit.dev/gpus": "GPU-1"}},
            "spec.template.metadata.annotations has x.closeknit.dev/gpus, whose prefix is reserved; remove it",
            id="a subdomain of ours",
        ),
        pytest.param({"labels": {"mycloseknit.dev/job": "x", "closeknit.dev": "y"}}, None, id="look-alikes"),
        pytest.param({"annotations": {"sidecar.istio.io/inject": "false"}}, None, id="another's annotation"),
    ],
)
def test_reserved_labels_and_annotations_are_refused(metadata: dict[str, Any], message: str | None) -> None:
    assert check_template(job({"containers": [MAIN]}, metadata)) == message


def test_a_message_stays_short_whatever_was_written() -> None:
    message = check_template(job({"containers": "x" * 100_000}))
    assert message == f'spec.template.spec.containers is "{"x" * 60}..."; it must be a list'


LABEL = {"key": "pool", "operator": "In", "values": ["a"]}
NAME = {"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}
ONE_OF_SIX = "In, NotIn, Exists, DoesNotExist, Gt or Lt"


@pytest.mark.parametrize(
    ("field", "changes", "message"),
    [
        pytest.param("matchExpressions", {}, None, id="a label"),
        pytest.param("matchExpressions", {"operator": "Exists", "values": []}, None, id="any value"),
        pytest.param("matchExpressions", {"operator": "Gt", "values": ["x"]}, None, id="a number that is none"),
        pytest.param("matchExpressions", {"values": ["", "b"]}, None, id="an empty value"),
        pytest.param("matchExpressions", {"operator": "Near"}, f'operator is "Near"; it must be {ONE_OF_SIX}'),
        pytest.param("matchExpressions", {"operator": ["In"]}, f"operator is a list; it must be {ONE_OF_SIX}"),
        pytest.param("matchExpressions", {"key": None}, "key is missing; it must be a string"),
        pytest.param("matchExpressions", {"key": "a b"}, 'key is "a b"; it must be the key of a label'),
        pytest.param("matchExpressions", {"key": "/pool"}, 'key is "/pool"; it must be the key of a label'),
        pytest.param("matchExpressions", {"values": None}, "values is empty; In needs one or more"),
        pytest.param("matchExpressions", {"values": "a"}, 'values is "a"; it must be a list'),
        pytest.param("matchExpressions", {"values": [8]}, "values[0] is the number 8; write it as a string, in quotes"),
        pytest.param("matchExpressions", {"values": ["-1"]}, 'values[0] is "-1"; it must be the value of a label'),
        pytest.param("matchExpressions", {"operator": "Exists"}, "values has 1; Exists takes none"),
        pytest.param(
            "matchExpressions", {"operator": "Lt", "values": ["1", "2"]}, "values has 2; Lt needs exactly one"
        ),
        pytest.param("matchFields", {}, None, id="a node's name"),
        pytest.param("matchFields", {"key": "spec.x"}, 'key is "spec.x"; the only field of a node is metadata.name'),
        pytest.param("matchFields", {"operator": "Exists"}, 'operator is "Exists"; it must be In or NotIn'),
        pytest.param("matchFields", {"values": ["a", "b"]}, "values has 2; a field takes exactly one"),
        pytest.param("matchFields", {"values": ["A"]}, 'values[0] is "A"; it must be the name of a node'),
    ],
)
def test_a_required_affinity_is_read_as_the_api_server_reads_it(
    field: str, changes: dict[str, Any], message: str | None
) -> None:
    entry = {**(LABEL if field == "matchExpressions" else NAME), **changes}
    found = check_template(job(required({"nodeSelectorTerms": [{}, {field: [entry]}]})))
    assert found == (None if message is None else f"{AFFINITY}.nodeSelectorTerms[1].{field}[0].{message}")


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param([{"matchExpressions": [LABEL] * 65}], id="one long term"),
        pytest.param([{"matchExpressions": [LABEL]}] * 32 + [{"matchFields": [NAME]}] * 33, id="many terms"),
    ],
)
def test_more_requirements_than_a_decision_looks_at_are_refused(terms: list[dict[str, Any]]) -> None:
    assert check_template(job(required({"nodeSelectorTerms": terms}))) == (
        f"{AFFINITY} has 65 requirements, and at most 64 are looked at; "
        "name many nodes in the values of one, or give them a label"
    )
    assert check_template(job(required({"nodeSelectorTerms": [{"matchExpressions": [LABEL] * 64}]}))) is None
    many = {**LABEL, "values": [f"v{number}" for number in range(5000)]}
    assert check_template(job(required({"nodeSelectorTerms": [{"matchExpressions": [many]}]}))) is None
