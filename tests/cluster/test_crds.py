"""The API server's own opinion of our CRDs: what it accepts and refuses, in which words, and what kubectl shows."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from closeknit.api.crd import custom_resource_definitions
from closeknit.api.crd.rules import immutable_message
from harness.api_writer import Answer
from harness.crd_cases import CASES, CHANGES, FULL_JOB, POD, TEMPLATE, Case, Change, manifest
from harness.kubectl import KubectlError
from harness.local_cluster import LocalCluster

CRDS = Path(__file__).parents[2] / "crds"
NAMESPACE = "crds"
MACHINE, NETWORK = "crds-machine", "crds-network"  # one that no operator of another test looks at


@pytest.fixture(scope="module")
def cluster(local_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The API server with our CRDs, and a namespace of our own."""
    local_cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={CRDS}")
    local_cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"--filename={CRDS}")
    local_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    # Established is said a moment before every handler of the API server knows the kind.
    kinds = "trainingjobs,nodetopologies,clustertopologies"
    local_cluster.wait_for(lambda: _is_served(local_cluster, kinds), f"{kinds} to be served")
    yield local_cluster
    local_cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def _is_served(cluster: LocalCluster, kinds: str) -> bool:
    try:
        cluster.get(kinds)
    except KubectlError:
        return False
    return True


def refusal(cluster: LocalCluster, *arguments: str, body: Mapping[str, Any] | None = None) -> str:
    """What kubectl says on the error stream; empty where the API server accepts. Nothing is stored."""
    try:
        stdin = None if body is None else json.dumps(body)
        cluster.kubectl(*arguments, f"--namespace={NAMESPACE}", "--dry-run=server", stdin=stdin)
    except KubectlError as error:
        return error.stderr.strip()
    return ""


def problems(said: Answer) -> list[str]:
    """What the API server lists as wrong with an object; where it does not list anything, its words.

    Where a schema refuses, it adds that it did not get to the rules.
    """
    causes = list(dict.fromkeys(said.causes)) or ([said.refusal] if said.refusal else [])
    return [cause for cause in causes if not cause.startswith("<nil>: ")]


@pytest.fixture(scope="module")
def full_job(cluster: LocalCluster) -> str:
    """The name of a stored job with every field set."""
    cluster.kubectl(
        "apply", f"--namespace={NAMESPACE}", "--filename=-", stdin=json.dumps(manifest("TrainingJob", "full", FULL_JOB))
    )
    return "full"


@pytest.fixture(scope="module")
def bare_job(cluster: LocalCluster) -> str:
    """The name of a stored job with nothing but what is required."""
    bare = manifest("TrainingJob", "bare", {"gpus": 8, "template": TEMPLATE})
    cluster.kubectl("apply", f"--namespace={NAMESPACE}", "--filename=-", stdin=json.dumps(bare))
    return "bare"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_the_api_server_agrees(cluster: LocalCluster, case: Case) -> None:
    said = cluster.writer.create(case.manifest, NAMESPACE, dry_run=True)
    if not case.refused_field:
        assert said.refusal == ""
        return
    assert problems(said) == [f"{case.refused_field}: {case.schema_words or f'Invalid value: {case.words}'}"]


@pytest.mark.parametrize(
    "change", [change for change in CHANGES if not change.is_mutable], ids=lambda change: change.field
)
def test_an_immutable_field_can_be_neither_changed_nor_removed_nor_added(
    cluster: LocalCluster, full_job: str, bare_job: str, change: Change
) -> None:
    forbidden = f"spec.{change.field}: Forbidden: {immutable_message(change.field)}"
    assert patched(cluster, full_job, {change.field: change.other}) == [forbidden]
    if change.field in ("gpus", "template"):  # required
        return
    assert patched(cluster, full_job, {change.field: None}) == [forbidden]
    added = patched(cluster, bare_job, {change.field: FULL_JOB[change.field]})
    assert forbidden in added  # a value made for 64 GPUs may break a rule on 8, too


@pytest.mark.parametrize("change", [change for change in CHANGES if change.is_mutable], ids=lambda change: change.field)
def test_a_mutable_field_can_be_changed_removed_and_added(
    cluster: LocalCluster, full_job: str, bare_job: str, change: Change
) -> None:
    assert patched(cluster, full_job, {change.field: change.other}) == []
    assert patched(cluster, full_job, {change.field: None}) == []
    value = {"minGPUs": 4} if change.field == "elastic" else change.other
    assert patched(cluster, bare_job, {change.field: value}) == []


def test_kubectl_says_what_cannot_be_changed(cluster: LocalCluster, full_job: str) -> None:
    said = refusal(cluster, "patch", "trainingjob", full_job, "--type=merge", '--patch={"spec":{"gpus":32}}')
    assert said == f'The TrainingJob "full" is invalid: spec.gpus: Forbidden: {immutable_message("gpus")}'


def patched(cluster: LocalCluster, name: str, spec: Mapping[str, Any]) -> list[str]:
    """What is wrong with a change of these fields; nothing is stored."""
    return problems(cluster.writer.patch("trainingjob", name, {"spec": spec}, NAMESPACE, dry_run=True))


METADATA = {"labels": {"team": "a"}}
SWAPS = {
    "metadata for an unknown key": ({"metadata": METADATA, "spec": POD}, {"foo": METADATA, "spec": POD}),
    "metadata for nothing": ({"metadata": METADATA, "spec": POD}, {"spec": POD}),
    "nothing for metadata": ({"spec": POD}, {"metadata": METADATA, "spec": POD}),
    "nothing for an unknown key": ({"spec": POD}, {"foo": METADATA, "spec": POD}),
    "labels for annotations": (
        {"metadata": METADATA, "spec": POD},
        {"metadata": {"annotations": {"team": "a"}}, "spec": POD},
    ),
    "a label for nothing": (
        {"metadata": {"creationTimestamp": None}, "spec": POD},
        {"metadata": METADATA, "spec": POD},
    ),
    "a label for another": ({"metadata": METADATA, "spec": POD}, {"metadata": {"labels": {"crew": "a"}}, "spec": POD}),
    "a field of the Pod for another": (
        {"spec": POD | {"restartPolicy": "Never"}},
        {"spec": POD | {"hostNetwork": True}},
    ),
    "the whole spec": ({"spec": POD}, {"spec": {"hostNetwork": True}}),
    "a key of a container for another": (
        {"spec": {"containers": [{"name": "trainer", "image": "a"}]}},
        {"spec": {"containers": [{"name": "trainer", "command": "a"}]}},
    ),
    "one container for two": ({"spec": POD}, {"spec": {"containers": [*POD["containers"], {"name": "side"}]}}),
    "a value deep inside": (
        {"spec": {"volumes": [{"projected": {"sources": [{"configMap": {"name": "a"}}]}}]}},
        {"spec": {"volumes": [{"projected": {"sources": [{"configMap": {"name": "b"}}]}}]}},
    ),
    "the order of containers": (
        {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}},
        {"spec": {"containers": [{"name": "b"}, {"name": "a"}]}},
    ),
}


@pytest.mark.parametrize("of", ["template", "parameterServers.template"])
@pytest.mark.parametrize("swap", SWAPS)
def test_a_template_cannot_be_changed_in_any_way(cluster: LocalCluster, swap: str, of: str) -> None:
    """CEL sees neither spec nor unknown keys; only the shape of the schema makes == compare them (crd/schema.py)."""
    before, after = SWAPS[swap]
    field = of.split(".", maxsplit=1)[0]
    name = f"swap-{list(SWAPS).index(swap)}-{field.lower()}"[:40]
    specs = [
        {"gpus": 1, "template": template if field == "template" else TEMPLATE}
        | ({} if field == "template" else {"parameterServers": {"replicas": 1, "template": template}})
        for template in (before, after)
    ]
    assert cluster.writer.create(manifest("TrainingJob", name, specs[0]), NAMESPACE).refusal == ""

    def replaced(spec: Mapping[str, Any]) -> list[str]:
        whole = [{"op": "replace", "path": "/spec", "value": spec}]
        return problems(cluster.writer.patch("trainingjob", name, whole, NAMESPACE, dry_run=True))

    assert replaced(specs[0]) == []
    assert replaced(specs[1]) == [f"spec.{field}: Forbidden: {immutable_message(field)}"]


def test_a_template_has_no_room_for_a_third_key(cluster: LocalCluster) -> None:
    template = {"metadata": METADATA, "spec": POD, "foo": {}}
    body = manifest("TrainingJob", "train", {"gpus": 1, "template": template})
    said = cluster.writer.create(body, NAMESPACE, dry_run=True)
    assert problems(said) == ["spec.template: Too many: 3: must have at most 2 items"]


def test_a_misspelt_field_is_refused(cluster: LocalCluster) -> None:
    spec = {"gpus": 8, "gpu": {"prodcts": ["NVIDIA-H200"]}, "template": TEMPLATE}
    said = refusal(cluster, "create", "--filename=-", body=manifest("TrainingJob", "train", spec))
    assert said.endswith('strict decoding error: unknown field "spec.gpu.prodcts"')


def objects_of(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, list[str]]]:
    """kubectl's path of every object in a schema, and the fields it has."""
    fields = schema.get("properties", {})
    if fields:
        yield path, sorted(fields)
    for name, field in fields.items():
        yield from objects_of(field, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from objects_of(schema[inner], path)


@pytest.mark.parametrize("name", custom_resource_definitions())
def test_kubectl_explains_every_field(cluster: LocalCluster, name: str) -> None:
    definition = custom_resource_definitions()[name]
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    kind = definition["spec"]["names"]["singular"]
    published = json.loads(cluster.kubectl("get", "--raw=/openapi/v3/apis/closeknit.dev/v1alpha1"))
    (shown,) = (
        each
        for each in published["components"]["schemas"].values()
        if definition["spec"]["names"]["kind"] in [of["kind"] for of in each.get("x-kubernetes-group-version-kind", [])]
    )
    for of in ("spec", "status"):
        fields = dict(objects_of(schema["properties"][of], of))
        listed = explained(cluster.kubectl("explain", f"{kind}.{of}", "--recursive"))
        assert listed == sorted(name for names in fields.values() for name in names)
        # What kubectl makes of it: each object's fields, all of them described.
        assert dict(objects_of(shown["properties"][of], of)) == fields
        assert list(undescribed(shown["properties"][of], of)) == []


def explained(text: str) -> list[str]:
    """The fields that `kubectl explain --recursive` lists: two blanks or more, the name, a tab, the type."""
    lines = text.partition("FIELDS:\n")[2].splitlines()
    return sorted(line.strip().split("\t")[0] for line in lines if line.startswith("  ") and "\t<" in line)


def undescribed(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Fields of which kubectl would say "<no description>"."""
    if not schema.get("description"):
        yield path
    for name, field in schema.get("properties", {}).items():
        yield from undescribed(field, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        for name, field in schema.get(inner, {}).get("properties", {}).items():
            yield from undescribed(field, f"{path}.{name}")


def test_explain_reads_well(cluster: LocalCluster) -> None:
    text = cluster.kubectl("explain", "trainingjob.spec.topology").replace("\t", " ")
    assert "\n".join(line.rstrip() for line in text.splitlines()).strip() == TOPOLOGY.strip()


TOPOLOGY = """\
GROUP:      closeknit.dev
KIND:       TrainingJob
VERSION:    v1alpha1

FIELD: topology <Object>


DESCRIPTION:
    How close the GPUs must be.

FIELDS:
  fabric <Object>
    Network levels that the job should stay inside.

  gpusPerNode <integer>
    Exact number of ranks on every node; divides gpus.

  minBusBandwidthGBps <number>
    Refuse placements whose all-reduce of 1 GiB is predicted below this bus
    bandwidth, in GB/s.

  nvlink <string>
  enum: Required, Preferred, Ignored
    Required, Preferred or Ignored: whether each tensor x context group, or
    without one each node's share, must share an NVLink island. Default
    Preferred.
"""

STATUS = {
    "observedGeneration": 1,
    "state": "Running",
    "restarts": 1,
    "attempt": 2,
    "conditions": [
        {"type": "Running", "status": "True", "reason": "PodsRunning", "lastTransitionTime": "2026-11-21T10:00:00Z"}
    ],
    "placement": {
        "nodeCount": 8,
        "nodes": [
            {
                "name": "gpu-07",
                "gpus": [0, 1, 2, 3, 4, 5, 6, 7],
                "ranks": "0-7",
                "nics": ["mlx5_0", "mlx5_3"],
                "binding": "DRA",
                "topologyGeneration": 4,
                "actual": "Verified",
            }
        ],
        "levels": {"rack": 1, "block": 1},
        "predictedBusBandwidthGBps": 351.2,
        "idealBusBandwidthGBps": 358.7,
        "limitedBy": "NVLink ring inside gpu-07",
    },
}
PENDING = {
    "state": "Queued",
    "pending": {
        "reason": "NoNVLinkIsland",
        "message": "needs 8 GPUs in one NVLink island; the largest free one has 6 (gpu-03)",
        "since": "2026-11-21T10:00:00Z",
    },
}


def test_get_shows_how_a_job_stands(cluster: LocalCluster, namespace: str) -> None:
    """Two jobs: one runs, one waits."""
    here = f"--namespace={namespace}"
    for name, gpus, status in (("train", 64, STATUS), ("wait", 8, PENDING)):
        spec = {"gpus": gpus, "queue": "research", "template": TEMPLATE}
        cluster.kubectl("create", here, "--filename=-", stdin=json.dumps(manifest("TrainingJob", name, spec)))
        patch = json.dumps({"status": status})
        cluster.kubectl("patch", "tj", name, here, "--subresource=status", "--type=merge", f"--patch={patch}")
    narrow = cluster.kubectl("get", "tj", here)
    assert cells(narrow) == [
        ["NAME", "STATUS", "GPUS", "NODES", "BANDWIDTH", "RESTARTS", "AGE"],
        ["train", "Running", "64", "8", "351.2", "1", "*"],
        ["wait", "Queued", "8", "", "", "", "*"],
    ]
    wide = cluster.kubectl("get", "tj", here, "--output=wide")
    assert cells(wide) == [
        ["NAME", "STATUS", "GPUS", "NODES", "BANDWIDTH", "RESTARTS", "AGE", "QUEUE", "LEVELS", "MESSAGE"],
        ["train", "Running", "64", "8", "351.2", "1", "*", "research", '{"block":1,"rack":1}', ""],
        ["wait", "Queued", "8", "", "", "", "*", "research", "", PENDING["pending"]["message"]],  # type: ignore[index]
    ]


def cells(table: str) -> list[list[str]]:
    """The rows of kubectl's table, cut where the header's words begin; the age is a star."""
    header, *rows = table.splitlines()
    starts = [at for at in range(len(header)) if header[at] != " " and (at == 0 or header[at - 1] == " ")]
    ends = [*starts[1:], None]
    names = [header[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    found = [[row[start:end].strip() for start, end in zip(starts, ends, strict=True)] for row in rows]
    return [
        names,
        *([("*" if name == "AGE" else cell) for name, cell in zip(names, row, strict=True)] for row in found),
    ]


def test_the_largest_job_on_nodes_of_eight_fits_into_one_object(cluster: LocalCluster) -> None:
    """65536 GPUs on 8192 nodes with names of cloud length, beside a template of the largest size taken (256 KiB)."""
    spec = {"gpus": 65536, "template": {"spec": {"containers": [POD["containers"][0] | {"args": ["x" * 256 * 1024]}]}}}
    cluster.kubectl(
        "create", f"--namespace={NAMESPACE}", "--filename=-", stdin=json.dumps(manifest("TrainingJob", "largest", spec))
    )
    nodes = [
        {
            "name": f"ip-10-{number // 256}-{number % 256}-117.eu-central-1.internal",
            "gpus": list(range(8)),
            "ranks": f"{number * 8}-{number * 8 + 7}",
            "binding": "DRA",
            "topologyGeneration": 4,
            "actual": "Verified",
        }
        for number in range(8192)
    ]
    nodes[0]["nics"] = [f"mlx5_{number}" for number in range(8)]
    stored = cluster.get("trainingjob", "largest", NAMESPACE) | {
        "status": {"placement": {"nodeCount": 8192, "nodes": nodes}}
    }
    cluster.kubectl(
        "replace", f"--namespace={NAMESPACE}", "--subresource=status", "--filename=-", stdin=json.dumps(stored)
    )
    # 1.53 MB as read back; etcd takes 1.57 MB. Without the template it is 1.27 MB.
    assert len(cluster.get("trainingjob", "largest", NAMESPACE)["status"]["placement"]["nodes"]) == 8192


def test_get_shows_machines_and_the_network(cluster: LocalCluster) -> None:
    gpu = {"index": 0, "pciAddress": "0000:18:00.0", "product": "NVIDIA-H200"}
    source = {"method": "NVML", "driverVersion": "580.159.04"}
    machine = manifest("NodeTopology", MACHINE, {"source": source, "gpus": [gpu], "nvlink": {"switched": True}})
    cluster.apply(machine)
    status = {
        "agentVersion": "0.1.0",
        "heartbeatTime": "2026-11-21T10:00:00Z",
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Measured", "lastTransitionTime": "2026-11-21T10:00:00Z"}
        ],
    }
    cluster.kubectl(
        "patch", "nt", MACHINE, "--subresource=status", "--type=merge", f"--patch={json.dumps({'status': status})}"
    )
    table = cells(cluster.kubectl("get", "nt", MACHINE, "--output=wide"))
    assert table[0] == ["NAME", "PRODUCT", "NVSWITCH", "READY", "HEARTBEAT", "AGE", "METHOD", "DRIVER", "AGENT"]
    assert table[1][:4] == [MACHINE, "NVIDIA-H200", "true", "True"]
    assert table[1][6:] == ["NVML", "580.159.04", "0.1.0"]
    levels = [{"name": name, "nodeLabel": f"example.com/{name}"} for name in ("zone", "block", "rack")]
    cluster.apply(manifest("ClusterTopology", NETWORK, {"levels": levels, "fabric": {"railIsolated": True}}))
    assert cells(cluster.kubectl("get", "ct", NETWORK)) == [
        ["NAME", "OUTERMOST", "INNERMOST", "RAIL-ISOLATED", "AGE"],
        [NETWORK, "zone", "rack", "true", "*"],
    ]
    cluster.kubectl("delete", f"nodetopology/{MACHINE}", f"clustertopology/{NETWORK}")
