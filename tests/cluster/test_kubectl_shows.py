"""What kubectl shows of our CRDs: the fields that it explains, and the columns of its tables."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from closeknit.api.crd import custom_resource_definitions
from closeknit.api.crd.definitions import UNSEEN_JOB
from harness.crd_cases import POD, TEMPLATE, manifest
from harness.local_cluster import LocalCluster

MACHINE, NETWORK = "crds-machine", "crds-network"  # one that no operator of another test looks at


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
def test_kubectl_explains_every_field(crds: LocalCluster, name: str) -> None:
    definition = custom_resource_definitions()[name]
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    kind = definition["spec"]["names"]["singular"]
    published = json.loads(crds.kubectl("get", "--raw=/openapi/v3/apis/closeknit.dev/v1alpha1"))
    (shown,) = (
        each
        for each in published["components"]["schemas"].values()
        if definition["spec"]["names"]["kind"] in [of["kind"] for of in each.get("x-kubernetes-group-version-kind", [])]
    )
    for of in ("spec", "status"):
        fields = dict(objects_of(schema["properties"][of], of))
        listed = explained(crds.kubectl("explain", f"{kind}.{of}", "--recursive"))
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


def test_explain_reads_well(crds: LocalCluster) -> None:
    text = crds.kubectl("explain", "trainingjob.spec.topology").replace("\t", " ")
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
    without one each node's share, must share an NVLink island. Required also
    keeps a gang to machines of one GPU product; the others mix products where
    nothing else exists, Ignored NVLink generations in one group, too. Ignored
    also takes several machines at once where one has no room. Default
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
    "reason": "OverSockets",
    "message": "all ranks talk over sockets",
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
WHY = {
    "reason": "NoNVLinkIsland",
    "message": "needs 8 GPUs in one NVLink island; the largest free one has 6 (gpu-03)",
}
START = "2026-11-21T14:20:00Z"
PENDING = {"state": "Queued", **WHY, "pending": {**WHY, "since": "2026-11-21T10:00:00Z", "estimatedStart": START}}


LEVELS = '{"block":1,"rack":1}'


def test_get_shows_how_a_job_stands(crds: LocalCluster, namespace: str) -> None:
    """Two jobs: one runs, one waits."""
    here = f"--namespace={namespace}"
    for name, gpus, status in (("train", 64, STATUS), ("wait", 8, PENDING)):
        spec = {"gpus": gpus, "queue": "research", "template": TEMPLATE}
        crds.kubectl("create", here, "--filename=-", stdin=json.dumps(manifest("TrainingJob", name, spec)))
        patch = json.dumps({"status": status})
        crds.kubectl("patch", "tj", name, here, "--subresource=status", "--type=merge", f"--patch={patch}")
    narrow = crds.kubectl("get", "tj", here)
    assert cells(narrow) == [
        ["NAME", "STATUS", "GPUS", "NODES", "BANDWIDTH", "RESTARTS", "REASON", "AGE"],
        ["train", "Running", "64", "8", "351.2", "1", "OverSockets", "*"],
        ["wait", "Queued", "8", "", "", "", "NoNVLinkIsland", "*"],
    ]
    wide = crds.kubectl("get", "tj", here, "--output=wide")
    assert [row[7:] for row in cells(wide)] == [
        ["AGE", "RUNS-WITH", "QUEUE", "LEVELS", "ESTIMATED-START", "MESSAGE"],
        ["*", "", "research", LEVELS, "", STATUS["message"]],
        ["*", "", "research", "", START, WHY["message"]],
    ]


def test_a_job_that_no_operator_has_looked_at_says_so_until_one_does(crds: LocalCluster, namespace: str) -> None:
    """Nothing of that is stored, and whoever makes or edits a job cannot say otherwise."""
    here = f"--namespace={namespace}"
    spec = {"gpus": 8, "template": TEMPLATE}
    forged = manifest("TrainingJob", "new", spec) | {"status": {"state": "Running"}}
    crds.kubectl("create", here, "--filename=-", stdin=json.dumps(forged))
    assert crds.writer.patch("trainingjob", "new", {"spec": {"gpus": 16}}, namespace).refusal == ""
    _, row = cells(crds.kubectl("get", "tj", here, "--output=wide"))
    assert (row[1], row[6], row[-1]) == ("Queued", "NotSeen", UNSEEN_JOB["message"])
    patch = [{"op": "replace", "path": "/status", "value": {"state": "Running", "attempt": 1}}]
    assert crds.writer.patch("trainingjob", "new", patch, namespace, subresource="status").refusal == ""
    assert crds.get("trainingjob", "new", namespace)["status"] == {"state": "Running", "attempt": 1}


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


def test_the_largest_job_on_nodes_of_eight_fits_into_one_object(crds: LocalCluster, namespace: str) -> None:
    """65536 GPUs on 8192 nodes with names of cloud length, beside a template of the largest size taken (256 KiB)."""
    spec = {"gpus": 65536, "template": {"spec": {"containers": [POD["containers"][0] | {"args": ["x" * 256 * 1024]}]}}}
    crds.kubectl(
        "create", f"--namespace={namespace}", "--filename=-", stdin=json.dumps(manifest("TrainingJob", "largest", spec))
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
    stored = crds.get("trainingjob", "largest", namespace) | {
        "status": {"placement": {"nodeCount": 8192, "nodes": nodes}}
    }
    crds.kubectl(
        "replace", f"--namespace={namespace}", "--subresource=status", "--filename=-", stdin=json.dumps(stored)
    )
    # 1.53 MB as read back; etcd takes 1.57 MB. Without the template it is 1.27 MB.
    assert len(crds.get("trainingjob", "largest", namespace)["status"]["placement"]["nodes"]) == 8192


def test_get_shows_machines_and_the_network(crds: LocalCluster) -> None:
    gpu = {"index": 0, "pciAddress": "0000:18:00.0", "product": "NVIDIA-H200"}
    source = {"method": "NVML", "driverVersion": "580.159.04"}
    machine = manifest("NodeTopology", MACHINE, {"source": source, "gpus": [gpu], "nvlink": {"switched": True}})
    crds.apply(machine)
    status = {
        "agentVersion": "0.1.0",
        "heartbeatTime": "2026-11-21T10:00:00Z",
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Measured", "lastTransitionTime": "2026-11-21T10:00:00Z"}
        ],
    }
    crds.kubectl(
        "patch", "nt", MACHINE, "--subresource=status", "--type=merge", f"--patch={json.dumps({'status': status})}"
    )
    table = cells(crds.kubectl("get", "nt", MACHINE, "--output=wide"))
    always = ["NAME", "PRODUCT", "NVSWITCH", "READY", "HEARTBEAT", "AGE", "LEMON"]
    assert table[0] == [*always, "METHOD", "DRIVER", "AGENT"]
    assert table[1][:4] == [MACHINE, "NVIDIA-H200", "true", "True"]
    assert table[1][6:] == ["", "NVML", "580.159.04", "0.1.0"]
    levels = [{"name": name, "nodeLabel": f"example.com/{name}"} for name in ("zone", "block", "rack")]
    crds.apply(manifest("ClusterTopology", NETWORK, {"levels": levels, "fabric": {"railIsolated": True}}))
    assert cells(crds.kubectl("get", "ct", NETWORK)) == [
        ["NAME", "OUTERMOST", "INNERMOST", "RAIL-ISOLATED", "READY", "AGENTS-REPORT", "AGE"],
        [NETWORK, "zone", "rack", "true", "", "", "*"],
    ]
    crds.kubectl("delete", f"nodetopology/{MACHINE}", f"clustertopology/{NETWORK}")
