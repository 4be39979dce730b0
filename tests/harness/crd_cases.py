"""Objects that are accepted or refused, one table for two judges: the models and the API server with our CRDs.

tests/unit/api/crd/test_crd_cases.py holds the models against it, tests/cluster/test_crds.py the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

POD = {"containers": [{"name": "trainer", "image": "pytorch"}]}
TEMPLATE = {"spec": POD}


@dataclass(frozen=True, slots=True)
class Case:
    """One object, and what is said of it. Without `refused_field` it is accepted.

    `words` are said by models and API server alike (rules between fields); `schema_words` are the API server's own for
    what a schema refuses, where a model names the same field in words of its own.
    """

    sentence: str
    kind: str
    spec: Any
    name: str = "train"
    refused_field: str = ""
    words: str = ""
    schema_words: str = ""

    @property
    def manifest(self) -> dict[str, Any]:
        return manifest(self.kind, self.name, self.spec)


def manifest(kind: str, name: str, spec: Any) -> dict[str, Any]:
    """An object of ours as a user would write it."""
    return {"apiVersion": "closeknit.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def job(sentence: str, refused_field: str = "", words: str = "", *, schema_words: str = "", **spec: Any) -> Case:
    """A TrainingJob of 8 GPUs, with these fields of its spec instead; None leaves a field out."""
    merged = {"gpus": 8, "template": TEMPLATE} | spec
    kept = {name: value for name, value in merged.items() if value is not None}
    return Case(sentence, "TrainingJob", kept, refused_field=refused_field, words=words, schema_words=schema_words)


def named(sentence: str, name: str, words: str = "") -> Case:
    return Case(
        sentence,
        "TrainingJob",
        {"gpus": 8, "template": TEMPLATE},
        name=name,
        refused_field="metadata.name" if words else "",
        words=words,
    )


def levels(sentence: str, *names: str, refused_field: str = "", words: str = "", schema_words: str = "") -> Case:
    spec = {"levels": [{"name": name, "nodeLabel": f"example.com/{index}"} for index, name in enumerate(names)]}
    return Case(sentence, "ClusterTopology", spec, "default", refused_field, words, schema_words)


def networks(sentence: str, *pairs: tuple[str, str], refused_field: str = "", words: str = "") -> Case:
    found = [{"resource": resource, "network": network} for resource, network in pairs]
    return Case(sentence, "ClusterTopology", {"fabric": {"sriovNetworks": found}}, "default", refused_field, words)


def node(sentence: str, refused_field: str = "", *, schema_words: str = "", **spec: Any) -> Case:
    merged = {"source": {"method": "NVML"}, "gpus": []} | spec
    return Case(sentence, "NodeTopology", merged, "gpu-0", refused_field, schema_words=schema_words)


NAME_WORDS = (
    "a TrainingJob's name starts with a letter, has only lower-case letters, digits and dashes, does not end in a dash "
    "and has at most 40 characters, so that the names of its Pods fit a host name"
)
DEGREES_WORDS = "tensor x context x pipeline must divide gpus"
GROUP_WORDS = (
    "elastic.minGPUs would break a group of ranks: tensor x context x pipeline must divide it, expert must divide "
    "minGPUs / (tensor x pipeline), and topology.gpusPerNode, if set, must divide it; set a multiple of these"
)
EXPERT_WORDS = "expert must divide context x data: gpus / (tensor x pipeline)"
WINDOW_WORDS = (
    "restart.window is from 1m to 8760h: a restart takes seconds, and within a shorter window no second one could be "
    "counted; leave it out for 24h"
)
STALL_WORDS = (
    "restart.stallDeadline is from 10s to 8760h: progress is looked for every few seconds, and by a shorter one every "
    "run would hang; 30m is usual, and longer than a checkpoint takes"
)
RULES_DISAGREE_WORDS = (
    "restart.rules name one exit code with two different actions; keep it in the rule that you mean, and take it out "
    "of the others"
)
NO_LIMIT_WORDS = (
    "restart.rules has the action Restart, which is charged, and restart.limit is 0, so that it could never restart; "
    "set restart.limit to 1 or more, or the action to RestartFree or Fail"
)
NO_LIMIT_FOR_HANGS_WORDS = (
    "restart.onHang is Restart, which is charged, and restart.limit is 0, so that it could never restart; set "
    "restart.limit to 1 or more, or leave restart.onHang out"
)
FAIL: Mapping[str, Any] = {"action": "Fail"}
RESTART: Mapping[str, Any] = {"action": "Restart"}
RESTART_FREE: Mapping[str, Any] = {"action": "RestartFree"}
RESERVED_WORDS = "host and nvlink-domain are levels that closeknit adds itself; leave them out"
FULL_JOB: Mapping[str, Any] = {
    "gpus": 64,
    "framework": "PyTorch",
    "parallelism": {"tensor": 8, "context": 1, "pipeline": 2, "expert": 1},
    "topology": {
        "nvlink": "Required",
        "fabric": {"required": "block", "preferred": "rack", "patience": "10m"},
        "gpusPerNode": 8,
        "minBusBandwidthGBps": 300,
    },
    "gpu": {"products": ["NVIDIA-H200"], "minMemory": "80Gi", "binding": "Auto", "allowShared": False},
    "network": {"rdma": "Preferred", "trafficClass": "training", "egressBandwidth": "10G", "allowHostNetwork": False},
    "storage": {"gpuDirect": False},
    "parameterServers": {"replicas": 2, "template": TEMPLATE},
    "queue": "research",
    "priorityClassName": "high",
    "expectedDuration": "6h",
    "elastic": {"minGPUs": 32},
    "spares": 1,
    "restart": {
        "limit": 5,
        "window": "24h",
        "stallDeadline": "30m",
        "onHang": "Warn",
        "rules": [{"exitCodes": [42], "action": "Fail"}],
    },
    "defragment": "Never",
    "preflight": "Never",
    "suspend": False,
    "ttlSecondsAfterFinished": 86400,
    "activeDeadlineSeconds": 604800,
    "template": {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}, "spec": POD},
}

CASES = (
    # What a schema says.
    job("a job with every field is accepted", **FULL_JOB),
    job("the smallest job is accepted"),
    job("one GPU is accepted", gpus=1),
    job("65536 GPUs are accepted", gpus=65536),
    job(
        "no GPUs are refused",
        "spec.gpus",
        gpus=0,
        schema_words="Invalid value: 0: spec.gpus in body should be greater than or equal to 1",
    ),
    job(
        "70000 GPUs are refused",
        "spec.gpus",
        gpus=70000,
        schema_words="Invalid value: 70000: spec.gpus in body should be less than or equal to 65536",
    ),
    job(
        "a world size in quotes is refused",
        "spec.gpus",
        gpus="8",
        schema_words='Invalid value: "string": spec.gpus in body must be of type integer: "string"',
    ),
    job("a job without a world size is refused", "spec.gpus", gpus=None, schema_words="Required value"),
    job("a job without a template is refused", "spec.template", template=None, schema_words="Required value"),
    job(
        "a template that is not an object is refused",
        "spec.template",
        template="pytorch",
        schema_words='Invalid value: "string": spec.template in body must be of type object: "string"',
    ),
    job("a template without a spec is refused", "spec.template.spec", template={}, schema_words="Required value"),
    job("a template as generators write it is accepted", template={"metadata": {"creationTimestamp": None}} | TEMPLATE),
    job(
        "a time in a template is refused",
        "spec.template.metadata.creationTimestamp",
        template={"metadata": {"creationTimestamp": "2026-11-22T12:00:00Z"}} | TEMPLATE,
        schema_words="Too long: may not be more than 0 bytes",
    ),
    job(
        "an unknown framework is refused",
        "spec.framework",
        framework="Caffe",
        schema_words='Unsupported value: "Caffe": supported values: "PyTorch", "DeepSpeed", "Horovod", "MPI", '
        '"TensorFlow", "JAX", "Custom"',
    ),
    job(
        "a duration without a unit is refused",
        "spec.expectedDuration",
        expectedDuration="600",
        schema_words="Invalid value: \"600\": spec.expectedDuration in body should match '^([0-9]+(h|m|s))+$'",
    ),
    # What the numbers owe each other.
    job(
        "degrees that divide the world size are accepted",
        gpus=16,
        parallelism={"tensor": 2, "context": 2, "pipeline": 4},
    ),
    job("degrees that do not divide it are refused", "spec.parallelism", DEGREES_WORDS, parallelism={"tensor": 3}),
    job(
        "degrees above the world size are refused",
        "spec.parallelism",
        DEGREES_WORDS,
        parallelism={"tensor": 8, "pipeline": 2},
    ),
    job(
        "degrees whose product is beyond 32 bits are refused",
        "spec.parallelism",
        DEGREES_WORDS,
        parallelism={"tensor": 4096, "context": 4096, "pipeline": 4096},
    ),
    job("experts that divide context x data are accepted", parallelism={"tensor": 2, "expert": 4}),
    job("experts over context groups are accepted", parallelism={"tensor": 2, "context": 4, "expert": 4}),
    job(
        "experts that do not divide it are refused",
        "spec.parallelism.expert",
        EXPERT_WORDS,
        parallelism={"tensor": 2, "expert": 3},
    ),
    job("a job that may shrink to itself is accepted", elastic={"minGPUs": 8}),
    job(
        "a job that may shrink to more than itself is refused",
        "spec.elastic.minGPUs",
        "elastic.minGPUs must not exceed gpus",
        elastic={"minGPUs": 9},
    ),
    job("a job that may shrink by whole groups is accepted", elastic={"minGPUs": 4}, parallelism={"tensor": 2}),
    job(
        "a job that may shrink to a part of a group is refused",
        "spec.elastic.minGPUs",
        GROUP_WORDS,
        elastic={"minGPUs": 2},
        parallelism={"tensor": 2, "pipeline": 2},
    ),
    job(
        "a job that may shrink to a part of an expert group is refused",
        "spec.elastic.minGPUs",
        GROUP_WORDS,
        elastic={"minGPUs": 4},
        parallelism={"tensor": 2, "expert": 4},
    ),
    job(
        "a job that may shrink to a part of a node's share is refused",
        "spec.elastic.minGPUs",
        GROUP_WORDS,
        elastic={"minGPUs": 2},
        topology={"gpusPerNode": 4},
    ),
    job(
        "a job that may shrink to nothing is refused",
        "spec.elastic.minGPUs",
        elastic={"minGPUs": 0},
        schema_words="Invalid value: 0: spec.elastic.minGPUs in body should be greater than or equal to 1",
    ),
    job("equal shares of nodes are accepted", topology={"gpusPerNode": 4}),
    job(
        "unequal shares of nodes are refused",
        "spec.topology.gpusPerNode",
        "topology.gpusPerNode must divide gpus",
        topology={"gpusPerNode": 3},
    ),
    job("a MIG device for one rank is accepted", gpus=1, gpu={"mig": "1g.18gb"}),
    job("a MIG device with media engines is accepted", gpus=1, gpu={"mig": "1g.18gb+me.all"}),
    job("MIG devices for several ranks are refused", "spec.gpu.mig", "gpu.mig needs gpus: 1", gpu={"mig": "1g.18gb"}),
    job("the least egress bandwidth is accepted", network={"egressBandwidth": "1k"}),
    job("the most egress bandwidth is accepted", network={"egressBandwidth": "1P"}),
    job(
        "an egress bandwidth that no Pod starts with is refused",
        "spec.network.egressBandwidth",
        "network.egressBandwidth is from 1k to 1P",
        network={"egressBandwidth": "999"},
    ),
    # Restarts.
    job("a job that never restarts is accepted", restart={"limit": 0, "window": "24h"}),
    job("the shortest window of restarts is accepted", restart={"limit": 1, "window": "60s"}),
    job("the longest window of restarts is accepted", restart={"limit": 1, "window": "8760h"}),
    job("a window of hours, minutes and seconds is accepted", restart={"limit": 1, "window": "1h30m1s"}),
    job("a window of nothing is refused", "spec.restart.window", WINDOW_WORDS, restart={"window": "0s"}),
    job("a window shorter than a restart is refused", "spec.restart.window", WINDOW_WORDS, restart={"window": "59s"}),
    job("the shortest deadline of progress is accepted", restart={"stallDeadline": "10s"}),
    job("a deadline of no time is refused", "spec.restart.stallDeadline", STALL_WORDS, restart={"stallDeadline": "0s"}),
    job(
        "a deadline shorter than a look is refused",
        "spec.restart.stallDeadline",
        STALL_WORDS,
        restart={"stallDeadline": "9s"},
    ),
    job(
        "a deadline of progress longer than a year is refused",
        "spec.restart.stallDeadline",
        STALL_WORDS,
        restart={"stallDeadline": "8760h1s"},
    ),
    job("a window longer than a year is refused", "spec.restart.window", WINDOW_WORDS, restart={"window": "8760h1s"}),
    job(
        "a window beyond what a duration holds is refused",
        "spec.restart.window",
        WINDOW_WORDS,
        restart={"window": "9999999999999999999999h"},
    ),
    job(
        "a negative limit is refused",
        "spec.restart.limit",
        restart={"limit": -1},
        schema_words="Invalid value: -1: spec.restart.limit in body should be greater than or equal to 0",
    ),
    job(
        "one exit code in two rules of one action is accepted",
        restart={"limit": 1, "rules": [{**FAIL, "exitCodes": [1, 42]}, {**FAIL, "exitCodes": [42]}]},
    ),
    job(
        "one exit code in two rules of different actions is refused",
        "spec.restart.rules",
        RULES_DISAGREE_WORDS,
        restart={"limit": 1, "rules": [{**FAIL, "exitCodes": [1, 42]}, {**RESTART, "exitCodes": [42, 43]}]},
    ),
    job(
        "rules that disagree are found in whatever order",
        "spec.restart.rules",
        RULES_DISAGREE_WORDS,
        restart={"rules": [{**RESTART_FREE, "exitCodes": [7]}, {**FAIL, "exitCodes": [8]}, {**FAIL, "exitCodes": [7]}]},
    ),
    job(
        "a rule for success is refused",
        "spec.restart.rules[0].exitCodes[0]",
        restart={"limit": 1, "rules": [{**RESTART, "exitCodes": [0]}]},
        schema_words="Invalid value: 0: spec.restart.rules[0].exitCodes[0] in body should be greater than or equal to "
        "1",
    ),
    job(
        "a charged restart without a limit is refused",
        "spec.restart.limit",
        NO_LIMIT_WORDS,
        restart={"rules": [{**RESTART, "exitCodes": [42]}]},
    ),
    job(
        "a charged restart with a limit of none is refused",
        "spec.restart.limit",
        NO_LIMIT_WORDS,
        restart={"limit": 0, "rules": [{**FAIL, "exitCodes": [41]}, {**RESTART, "exitCodes": [42]}]},
    ),
    job(
        "a restart of hung gangs without a limit is refused",
        "spec.restart.limit",
        NO_LIMIT_FOR_HANGS_WORDS,
        restart={"onHang": "Restart", "stallDeadline": "10m"},
    ),
    job("a restart of hung gangs with a limit is accepted", restart={"onHang": "Restart", "limit": 1}),
    job("a free restart without a limit is accepted", restart={"rules": [{**RESTART_FREE, "exitCodes": [42]}]}),
    job(
        "an action that is none is refused",
        "spec.restart.rules[0].action",
        restart={"limit": 1, "rules": [{"exitCodes": [42], "action": "Retry"}]},
        schema_words='Unsupported value: "Retry": supported values: "Fail", "Restart", "RestartFree"',
    ),
    job(
        "fewer spare nodes than none are refused",
        "spec.spares",
        spares=-1,
        schema_words="Invalid value: -1: spec.spares in body should be greater than or equal to 0",
    ),
    job(
        "more spare nodes than a gang is given are refused",
        "spec.spares",
        spares=65,
        schema_words="Invalid value: 65: spec.spares in body should be less than or equal to 64",
    ),
    # Names.
    named("a name of one letter is accepted", "t"),
    named("a name of 40 characters is accepted", "t" + "-8" * 19 + "t"),
    named("a name of 41 characters is refused", "t" * 41, NAME_WORDS),
    named("a name that starts with a digit is refused", "8b-pretrain", NAME_WORDS),
    named("a name with a dot is refused", "llama-3.1", NAME_WORDS),
    # ClusterTopology.
    levels("a cluster without levels is accepted"),
    levels("levels with different names are accepted", "zone", "block", "rack"),
    levels(
        "equal level names are refused", "rack", "rack", refused_field="spec.levels", words="level names must differ"
    ),
    levels("a level called host is refused", "rack", "host", refused_field="spec.levels[1].name", words=RESERVED_WORDS),
    levels(
        "a level called nvlink-domain is refused",
        "nvlink-domain",
        refused_field="spec.levels[0].name",
        words=RESERVED_WORDS,
    ),
    levels(
        "a level name that is no label is refused",
        "Rack",
        refused_field="spec.levels[0].name",
        schema_words='Invalid value: "Rack": spec.levels[0].name in body should match '
        "'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'",
    ),
    networks(
        "networks of different functions are accepted", ("a.example/rail0", "ops/rail-0"), ("a.example/rail1", "b/c")
    ),
    networks(
        "two networks of the same functions are refused",
        ("a.example/rail0", "a/b"),
        ("a.example/rail0", "a/c"),
        refused_field="spec.fabric.sriovNetworks",
        words="resources must differ",
    ),
    networks(
        "one network of two kinds of functions is refused",
        ("a.example/rail0", "a/b"),
        ("a.example/rail1", "a/b"),
        refused_field="spec.fabric.sriovNetworks",
        words="networks must differ, for each names its one resource",
    ),
    networks(
        "GPUs as functions are refused",
        ("nvidia.com/gpu", "a/b"),
        refused_field="spec.fabric.sriovNetworks[0].resource",
        words="resource is one of GPUs; name one of SR-IOV functions",
    ),
    networks(
        "MIG devices as functions are refused",
        ("a.example/rail0", "a/b"),
        ("nvidia.com/mig-1g.10gb", "a/c"),
        refused_field="spec.fabric.sriovNetworks[1].resource",
        words="resource is one of GPUs; name one of SR-IOV functions",
    ),
    # NodeTopology.
    node("a node without GPUs is accepted"),
    node(
        "a GPU of which only index and address are known is accepted", gpus=[{"index": 0, "pciAddress": "0000:18:00.0"}]
    ),
    node(
        "a GPU without an address is refused",
        "spec.gpus[0].pciAddress",
        gpus=[{"index": 0}],
        schema_words="Required value",
    ),
    node(
        "a GPU index beyond 63 is refused",
        "spec.gpus[0].index",
        gpus=[{"index": 64, "pciAddress": "0000:18:00.0"}],
        schema_words="Invalid value: 64: spec.gpus[0].index in body should be less than or equal to 63",
    ),
)


@dataclass(frozen=True, slots=True)
class Change:
    """Two values of one field of a TrainingJob's spec; FULL_JOB holds the first."""

    field: str
    other: Any
    is_mutable: bool = False


CHANGES = (
    Change("gpus", 128),
    Change("framework", "DeepSpeed"),
    Change("parallelism", {"tensor": 4}),
    Change("topology", {"fabric": {"patience": "20m"}}),
    Change("gpu", {"products": ["NVIDIA-H100"]}),
    Change("network", {"rdma": "Required"}),
    Change("storage", {"gpuDirect": True}),
    Change("parameterServers", {"replicas": 3}),
    Change("expectedDuration", "7h"),
    Change("spares", 2),
    Change("restart", {"rules": [{"exitCodes": [43], "action": "Fail"}]}),
    Change("defragment", "OnRestart"),
    Change("preflight", "Warn"),
    Change("activeDeadlineSeconds", 604801),
    Change("template", {"metadata": {"labels": {"team": "b"}}}),
    Change("suspend", True, is_mutable=True),
    Change("priorityClassName", "low", is_mutable=True),
    Change("queue", "production", is_mutable=True),
    Change("elastic", {"minGPUs": 16}, is_mutable=True),
    Change("ttlSecondsAfterFinished", 60, is_mutable=True),
)
