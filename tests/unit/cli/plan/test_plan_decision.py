"""What `closeknit plan` answers: the examples, the shapes, the order of the queue, and what a file may leave out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from closeknit.cli.main import app
from harness import example_cluster
from scenarios.machines import hgx_h200
from scenarios.manifests import (
    Manifest,
    booked,
    claiming,
    condition,
    cut,
    node,
    node_topology,
    pod,
    priority_class,
    resource_claim,
    resource_slice,
    training_job,
    uuids,
    volume,
    volume_claim,
    worker,
)

EXAMPLES = Path(__file__).parents[4] / "examples"


UNCHECKED = (
    "not checked: what quotas, Pod Security and other admission say to its Pods, and",
    "whether what they name is there; without --cluster the API server is asked",
)


def run(job: Path, cluster: Path) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["plan", "-f", str(job), "--cluster", str(cluster), "-o", "json"])
    assert result.stderr == ""
    answer: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if answer["fits"] else 3)
    return answer


def plan(folder: Path, job: Manifest, *objects: Manifest) -> dict[str, Any]:
    (folder / "job").write_text(json.dumps(job))
    (folder / "cluster").write_text(yaml.safe_dump_all(objects))
    return run(folder / "job", folder / "cluster")


def asked(name: str = "asked", *, priority: str | None = None, **spec: Any) -> Manifest:
    """A job as a person writes it: nothing that an API server adds."""
    made = training_job(name, namespace="ml", spec={**spec, **({"priorityClassName": priority} if priority else {})})
    return {**made, "metadata": {"name": name, "namespace": "ml"}, "status": {}}


def nodes_of(answer: dict[str, Any]) -> list[tuple[str, list[int]]]:
    return [(each["name"], each["gpus"]) for each in answer["placement"]["nodes"]]


def claims_not_checked(answer: dict[str, Any]) -> int:
    return sum("PersistentVolumeClaim" in words for words in answer["notChecked"])


def reason_of(answer: dict[str, Any]) -> str:
    return str(answer["pending"]["reason"])


def test_no_client_of_a_cluster_is_even_loaded() -> None:
    """The contract of pyproject.toml says it of the modules that `plan` enters by; this says it of the command."""
    program = (
        "import sys; from closeknit.cli.main import app; app(sys.argv[1:], standalone_mode=False);"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} | "
        "{name for name in sys.modules if name.startswith('closeknit.')}), file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, "plan", "-f", "tensor-4.yaml", "--cluster", "cluster.yaml"]
    loaded = set(subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, check=True).stderr.split())
    assert "closeknit.lifecycle" in loaded
    assert (
        loaded & {"closeknit.kube", "closeknit.controller", "closeknit.runtime", "kopf", "kubernetes", "aiohttp"}
        == set()
    )


def test_where_parameter_servers_go() -> None:
    job, cluster = EXAMPLES / "tensorflow-servers.yaml", EXAMPLES / "cluster.yaml"
    said = CliRunner().invoke(app, ["plan", "-f", str(job), "--cluster", str(cluster)])
    assert "parameter servers: gpu-01, gpu-05\n" in said.stdout
    served = run(job, cluster)["placement"]["parameterServers"]
    assert served == [{"node": "gpu-01", "index": 0}, {"node": "gpu-05", "index": 1}]


def test_the_example_cluster_is_what_the_profiles_give() -> None:
    assert example_cluster.text() == example_cluster.FILE.read_text(), "run python -m harness.example_cluster"


def test_the_example_that_fits_in_one_machine_takes_the_set_with_a_ring() -> None:
    answer = run(EXAMPLES / "tensor-4.yaml", EXAMPLES / "cluster.yaml")
    assert nodes_of(answer) == [("gpu-03", [0, 3, 4, 7])]  # 0, 1, 3, 4, the first that are free, have no NVLink ring
    assert answer["placement"]["nodes"][0]["binding"] == "DRA"


def racks_left_out(folder: Path) -> Path:
    """The example cluster where nobody has described a level."""
    parts = list(yaml.safe_load_all((EXAMPLES / "cluster.yaml").read_text()))
    for each in parts:
        if each["kind"] == "ClusterTopology":
            each["spec"] = {}
        each["metadata"].pop("labels", None)
    (folder / "flat").write_text(yaml.safe_dump_all(parts))
    return folder / "flat"


JOBS = sorted(file for file in EXAMPLES.glob("*.yaml") if file.stem != "cluster")


@pytest.mark.parametrize("job", JOBS, ids=lambda file: file.stem)
def test_an_example_needs_no_level(tmp_path: Path, job: Path) -> None:
    with_racks, without = run(job, EXAMPLES / "cluster.yaml"), run(job, racks_left_out(tmp_path))
    assert without["fits"] == with_racks["fits"]
    if without["fits"]:
        placed = [{"name": each["name"], "gpus": each["gpus"]} for each in without["placement"]["nodes"]]
        assert len(placed) == with_racks["placement"]["nodeCount"]
        assert ("prefers level rack" in without.get("unknownPreference", "")) == ("preferred: rack" in job.read_text())
    else:
        assert reason_of(without) == reason_of(with_racks)


def test_the_example_over_two_machines_stays_in_one_rack() -> None:
    answer = run(EXAMPLES / "pytorch-16gpu.yaml", EXAMPLES / "cluster.yaml")
    assert nodes_of(answer) == [("gpu-01", list(range(8))), ("gpu-05", list(range(8)))]
    assert answer["placement"]["levels"] == {"rack": 1}
    assert answer["placement"]["predictedBusBandwidthGBps"] > 300


def test_the_example_that_is_too_large_says_why() -> None:
    assert run(EXAMPLES / "too-large.yaml", EXAMPLES / "cluster.yaml") == {
        "fits": False,
        "pending": {
            "reason": "NoNVLinkIsland",
            "message": "needs 32 GPUs in one NVLink island; largest free island has 8 (gpu-01), and no machine here "
            "has more than 8 in one: lower tensor x context, or set nvlink: Ignored; "
            "2 excluded: 2 held by 1 claim",
            "nearest": ["with topology.nvlink: Ignored: 32 GPUs on 4 nodes, 15.0 GB/s"],
        },
        "free": {
            "freeGPUs": 38,
            "ofPartlyUsedNodes": 6,
            "largestGang": 38,
            "largestInside": {"rack": 22, "host": 8},
            "islands": {"2": 4, "6": 1, "8": 3},
        },
    }


def test_a_fit_for_people() -> None:
    arguments = ["-f", str(EXAMPLES / "tensor-4.yaml"), "--cluster", str(EXAMPLES / "cluster.yaml")]
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "default/tensor-4 fits: 4 GPUs on 1 node in 1 rack",
        "NODE    GPUS     RANKS  BINDING  NICS",
        "gpu-03  0,3,4,7  0-3    DRA      -",
        "predicted all-reduce bus bandwidth: 60.0 GB/s of 80.0 at best",
        "limited by: NVLink ring inside gpu-03",
        *UNCHECKED,
    ]


def eight(folder: Path, **environment: str) -> Path:
    """A job of eight GPUs whose trainer has these variables."""
    entries = [{"name": name, "value": value} for name, value in environment.items()]
    template = {"spec": {"containers": [{"name": "trainer", "image": "i", "env": entries}]}}
    (folder / "job").write_text(json.dumps(asked(gpus=8, template=template)))
    return folder / "job"


def test_what_nvls_could_reach_is_told_beside_the_prediction(tmp_path: Path) -> None:
    arguments = ["plan", "-f", str(eight(tmp_path)), "--cluster", str(EXAMPLES / "cluster.yaml")]
    assert [line.rstrip() for line in CliRunner().invoke(app, arguments).stdout.splitlines()][-6:] == [
        "predicted all-reduce bus bandwidth: 358.9 GB/s of 358.9 at best",
        "limited by: NVLink ring inside gpu-01",
        "where the driver gives NVSwitch multicast (NVLS), which is not counted, NCCL",
        "plans 476.0 GB/s",
        *UNCHECKED,
    ]
    assert run(tmp_path / "job", EXAMPLES / "cluster.yaml")["nvlsBusBandwidthGBps"] == 476.0


@pytest.mark.parametrize("environment", [{"NCCL_NVLS_ENABLE": "0"}, {"NCCL_ALGO": "Ring"}], ids=str)
def test_nothing_is_told_of_nvls_that_the_job_turns_off(tmp_path: Path, environment: dict[str, str]) -> None:
    assert "nvlsBusBandwidthGBps" not in run(eight(tmp_path, **environment), EXAMPLES / "cluster.yaml")


@pytest.mark.parametrize("gpus", [4, 16], ids=["rings are planned faster", "over two nodes"])
def test_nothing_is_told_of_nvls_where(tmp_path: Path, gpus: int) -> None:
    (tmp_path / "job").write_text(json.dumps(asked(gpus=gpus, gpu={"products": ["NVIDIA-H200"]})))
    assert "nvlsBusBandwidthGBps" not in run(tmp_path / "job", EXAMPLES / "cluster.yaml")


SOCKETS = [
    pytest.param({"gpus": 8}, None, id="on one node"),
    pytest.param({"gpus": 16}, None, id="over InfiniBand"),
    pytest.param({"gpus": 16, "network": {"rdma": "Disabled"}}, "network.rdma is Disabled", id="as the job wants it"),
    pytest.param(
        {"gpus": 4, "topology": {"nvlink": "Ignored", "gpusPerNode": 2}, "gpu": {"products": ["NVIDIA-RTX-A6000",
         "Tesla-V100-SXM2-32GB"]}}, "the nodes' NICs have no transport in common", id="unlike nodes",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "why"), SOCKETS)
def test_a_gang_that_falls_back_to_tcp_is_told_why(tmp_path: Path, spec: dict[str, Any], why: str | None) -> None:
    (tmp_path / "job").write_text(json.dumps(asked(**spec)))
    told = None if why is None else f"ranks of different nodes talk over TCP: {why}"
    assert run(tmp_path / "job", EXAMPLES / "cluster.yaml").get("overTCP") == told
    arguments = ["plan", "-f", str(tmp_path / "job"), "--cluster", str(EXAMPLES / "cluster.yaml")]
    shown = " ".join(CliRunner().invoke(app, arguments).stdout.split())
    assert [words in shown for words in ("talk over TCP: ", "lacks: all ranks talk over sockets, because ")] == [
        why is not None and "common" not in why,
        why is not None and "common" in why,
    ]


def test_a_node_without_nics_is_named_and_no_field_advised_that_is_set(tmp_path: Path) -> None:
    fabric = {"levels": [{"name": "rack", "nodeLabel": "rack"}], "fabric": {"levelBandwidthGBps": {"rack": 25}}}
    described = {"apiVersion": "closeknit.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "default"},
                 "spec": fabric}  # fmt: skip
    objects = [
        described,
        *(node(name, labels={"rack": "r1"}) for name in ("gpu-1", "gpu-2")),
        *({**node_topology(name), "spec": {**hgx_h200(name).wire(), "nics": []}} for name in ("gpu-1", "gpu-2")),
    ]
    found = plan(tmp_path, asked(gpus=16), *objects)
    without = "gpu-1, gpu-2 have no RDMA NIC that NCCL could use"
    assert found["overTCP"] == f"ranks of different nodes talk over TCP: {without}"
    assert found["placement"]["limitedBy"] == (
        "network between domains of level host is not described: add host to fabric.levelBandwidthGBps in "
        "ClusterTopology default"
    )
    refused = plan(tmp_path, asked(gpus=16, topology={"minBusBandwidthGBps": 300}), *objects)
    assert "over TCP, bandwidth unknown" in " ".join(refused["pending"]["nearest"])


def test_a_lemon_that_it_has_to_take_is_warned_of(tmp_path: Path) -> None:
    ends = [{"job": "team-b/old", "reason": "NodeLost", "ended": f"2026-11-{day}T10:00:00Z"} for day in (20, 21)]
    bad = node_topology("gpu-1", heartbeatTime="2026-11-22T10:00:00Z", runEnds=ends)
    objects = [node("gpu-1"), bad, node("gpu-2"), node_topology("gpu-2", heartbeatTime="2026-11-22T10:00:00Z")]
    one, both = (plan(tmp_path, asked(gpus=gpus), *objects) for gpus in (8, 16))
    assert ([each["name"] for each in one["placement"]["nodes"]], one.get("warnings")) == (["gpu-2"], None)
    assert [each.partition(" (")[0] for each in both["warnings"]] == ["node gpu-1 ended 2 runs within 7 days"]
    assert both["warnings"][0].endswith(", and nothing else has room")


def test_spare_nodes_are_planned_and_too_few_of_them_warned_of(tmp_path: Path) -> None:
    objects = [each for number in range(1, 5) for each in (node(f"gpu-{number}"), node_topology(f"gpu-{number}"))]
    found = plan(tmp_path, asked(gpus=16, spares=3), *objects)
    assert [each["name"] for each in found["placement"]["spares"]] == ["gpu-3", "gpu-4"]
    assert found["warnings"] == ["spares: 2 of 3: no more nodes like its own are free near them"]


def test_a_spare_node_of_another_job_is_told_as_lent(tmp_path: Path) -> None:
    objects = [each for number in range(1, 3) for each in (node(f"gpu-{number}"), node_topology(f"gpu-{number}"))]
    placement = booked(("gpu-1", range(8)))
    placement["spares"] = [{**booked(("gpu-2", range(8)))["nodes"][0], "ranks": ""}]
    spec = {"gpus": 8, "priorityClassName": "high", "spares": 1}
    owner = training_job("owner", spec=spec, placement=placement, attempt=1)
    found = plan(tmp_path, asked(gpus=8), *objects, priority_class("high", 100), owner)
    assert found["warnings"] == [
        "gpu-2 is a spare node of another job, which takes it back when it loses a node: the job then waits again"
    ]


def test_settings_that_undo_the_placement_are_warned_of(tmp_path: Path) -> None:
    command = ["bash", "-c", "torchrun --nnodes=1:4 --rdzv_backend=etcd train.py"]
    env = [{"name": "NCCL_ALGO", "value": "Ring"}]
    template = {"spec": {"containers": [{"name": "trainer", "image": "i", "command": command, "env": env}]}}
    (tmp_path / "job").write_text(json.dumps(asked(gpus=16, template=template)))
    warnings = run(tmp_path / "job", EXAMPLES / "cluster.yaml")["warnings"]
    assert [each.partition(": ")[0] for each in warnings] == ["--nnodes=1:4", "--rdzv-backend=etcd", "NCCL_ALGO=Ring"]
    arguments = ["-f", str(tmp_path / "job"), "--cluster", str(EXAMPLES / "cluster.yaml")]
    for shower in ("plan", "env"):
        shown = " ".join(CliRunner().invoke(app, [shower, *arguments]).stdout.split())
        assert all(f"warning: {each}" in shown for each in warnings)


def test_what_a_job_waits_for_before_it_is_torn_is_told(tmp_path: Path) -> None:
    """Of two machines of eight GPUs half of each is held."""
    objects = [
        each
        for name in ("gpu-1", "gpu-2")
        for each in (
            node(name, gpus=None),
            {**node_topology(name), "spec": hgx_h200(name).wire()},
            resource_slice(name, range(8)),
            resource_claim(f"on-{name}", *((name, index) for index in range(4))),
        )
    ]
    found = plan(tmp_path, asked(gpus=8), *objects)
    assert found["waitsFirst"] == (
        "at first, for 1800 s at most, it waits for 8 GPUs in one host; gpu-1 has the most free, 4; it fits over 2 "
        "hosts at a bandwidth that is not predicted, where one host gives up to 358.9 GB/s; 8 excluded: 8 held by 2 "
        "claims"
    )
    shown = CliRunner().invoke(app, ["plan", "-f", str(tmp_path / "job"), "--cluster", str(tmp_path / "cluster")])
    assert found["waitsFirst"] in " ".join(shown.stdout.split())
    assert "waitsFirst" not in plan(tmp_path, asked(gpus=8, topology={"nvlink": "Ignored"}), *objects)


def test_volumes_count_where_the_file_tells_of_any_and_else_are_said_not_to_be_checked(tmp_path: Path) -> None:
    machines = [each for name in ("gpu-1", "gpu-2") for each in (node(name), node_topology(name))]
    job = asked(gpus=8, template=claiming("data"))
    answer = plan(tmp_path, job, *machines)
    assert (nodes_of(answer)[0][0], claims_not_checked(answer)) == ("gpu-1", 1)
    shown = CliRunner().invoke(app, ["plan", "-f", str(tmp_path / "job"), "--cluster", str(tmp_path / "cluster")])
    words = "not checked: PersistentVolumeClaim data: whether it is bound, and on which nodes; nothing here"
    assert words in " ".join(shown.stdout.split())
    found = volume_claim(volume="disk", namespace="ml")
    answer = plan(tmp_path, job, *machines, found, volume("disk", hosts=["gpu-2"]))
    assert (nodes_of(answer)[0][0], claims_not_checked(answer)) == ("gpu-2", 0)
    assert reason_of(plan(tmp_path, job, *machines, volume_claim("other", namespace="ml"))) == "VolumeUnavailable"


def test_a_refusal_for_people() -> None:
    arguments = ["-f", str(EXAMPLES / "too-large.yaml"), "--cluster", str(EXAMPLES / "cluster.yaml")]
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert (result.exit_code, result.stderr) == (3, "")
    assert " ".join(result.stdout.split()) == (
        "default/too-large does not fit: NoNVLinkIsland needs 32 GPUs in one NVLink island; largest free island has "
        "8 (gpu-01), and no machine here has more than 8 in one: lower tensor x context, or set "
        "nvlink: Ignored; 2 excluded: 2 held by 1 claim "
        "- with topology.nvlink: Ignored: 32 GPUs on 4 nodes, 15.0 GB/s "
        "free now: 38 GPUs, 6 on partly used nodes; the largest gang 22 in one rack, 8 in one host; "
        "NVLink islands: 3 of 8, 1 of 6, 4 of 2"
    )


def test_the_json_of_a_fit_names_every_rank(tmp_path: Path) -> None:
    environment = [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "EPOCHS", "value": "3"}]
    template = {"spec": {"containers": [{"name": "trainer", "image": "i", "env": environment}]}}
    job = asked(gpus=4, parallelism={"tensor": 2, "expert": 2}, template=template)
    answer = plan(tmp_path, job, node_topology("gpu-1", count=4))
    assert sorted(answer) == ["environment", "fits", "notChecked", "placement", "ranks"]
    assert answer["ranks"] == [
        {
            "rank": rank,
            "node": "gpu-1",
            "gpu": rank,
            "uuid": uuid,
            "coordinates": {"tensor": rank % 2, "context": 0, "pipeline": 0, "data": rank // 2, "expert": rank // 2},
        }
        for rank, uuid in enumerate(uuids("gpu-1", 0, 1, 2, 3))
    ]
    assert {name: answer["environment"][name] for name in ("NCCL_DEBUG", "EPOCHS", "PET_NPROC_PER_NODE")} == {
        "NCCL_DEBUG": "INFO",
        "EPOCHS": "3",
        "PET_NPROC_PER_NODE": "4",
    }


def test_a_gpu_whose_uuid_nobody_knows_has_none(tmp_path: Path) -> None:
    machine = node_topology("gpu-1", count=1)
    del machine["spec"]["gpus"][0]["uuid"]
    assert "uuid" not in plan(tmp_path, asked(gpus=1), machine)["ranks"][0]


def test_without_nodes_each_machine_is_a_ready_one_with_a_device_plugin(tmp_path: Path) -> None:
    answer = plan(tmp_path, asked(gpus=8), node_topology("gpu-1"))
    assert [(each["name"], each["binding"]) for each in answer["placement"]["nodes"]] == [("gpu-1", "WholeNode")]


def test_a_node_without_topology_is_left_out(tmp_path: Path) -> None:
    objects = [node("gpu-1"), node("gpu-2"), node_topology("gpu-2")]
    assert nodes_of(plan(tmp_path, asked(gpus=8), *objects)) == [("gpu-2", list(range(8)))]
    refused = plan(tmp_path, asked(gpus=16), *objects)
    assert (reason_of(refused), "NoTopology" in refused["pending"]["message"]) == ("InsufficientGPUs", True)


def test_pods_without_gpus_count_as_they_do_in_a_cluster(tmp_path: Path) -> None:
    objects = [each for name in ("gpu-1", "gpu-2") for each in (node(name), node_topology(name))]
    web = pod("web", requests={"cpu": "100"}, node="gpu-1")
    resources = {"requests": {"cpu": "64"}}
    job = asked(gpus=8, template={"spec": {"containers": [{"name": "main", "image": "x", "resources": resources}]}})
    assert nodes_of(plan(tmp_path, job, *objects)) == [("gpu-1", list(range(8)))]
    assert nodes_of(plan(tmp_path, job, *objects, web)) == [("gpu-2", list(range(8)))]
    other = pod("other", requests={"cpu": "100"}, node="gpu-2")
    assert reason_of(plan(tmp_path, job, *objects, web, other)) == "InsufficientResources"


def test_the_newest_heartbeat_is_now_and_an_absent_one_is_not_stale(tmp_path: Path) -> None:
    objects = [
        node_topology("gpu-1", heartbeatTime="2026-11-21T11:44:59Z"),  # 15 min and a second before the newest
        node_topology("gpu-2", heartbeatTime="2026-11-21T11:45:00Z"),
        node_topology("gpu-3"),
        node_topology("gpu-4", heartbeatTime="2026-11-21T12:00:00Z"),
    ]
    assert [name for name, _ in nodes_of(plan(tmp_path, asked(gpus=24), *objects))] == ["gpu-2", "gpu-3", "gpu-4"]
    assert reason_of(plan(tmp_path, asked(gpus=32), *objects)) == "InsufficientGPUs"


def test_a_heartbeat_of_the_future_makes_no_other_agent_stale(tmp_path: Path) -> None:
    objects = [
        node_topology("gpu-1", heartbeatTime="2026-11-21T12:00:00Z"),
        node_topology("gpu-2", heartbeatTime="3000-01-01T00:00:00Z"),
    ]
    assert [name for name, _ in nodes_of(plan(tmp_path, asked(gpus=16), *objects))] == ["gpu-1", "gpu-2"]


QUEUE = [
    pytest.param({}, {}, False, id="an older job of the same priority comes first"),
    pytest.param({}, {"priority": "high"}, True, id="a higher priority passes it"),
    pytest.param({"priorityClassName": "high"}, {"priority": "high"}, False, id="not one of its own priority"),
    pytest.param({"gpus": 64}, {}, True, id="a job that does not fit reserves nothing"),
    pytest.param({"suspend": True}, {}, True, id="a suspended one neither"),
]


@pytest.mark.parametrize(("other", "own", "fits"), QUEUE)
def test_unbooked_jobs_of_the_file_come_first(
    tmp_path: Path, other: dict[str, Any], own: dict[str, Any], fits: bool
) -> None:
    waiting = training_job("waiting", spec={"gpus": 8, **other})
    objects = [node_topology("gpu-1"), waiting, priority_class("high", 1000)]
    assert plan(tmp_path, asked(gpus=8, **own), *objects)["fits"] is fits


def test_jobs_of_one_age_come_by_name_and_a_stored_one_keeps_its_age(tmp_path: Path) -> None:
    stored = training_job("asked", namespace="ml", spec={"gpus": 8})
    objects = [node_topology("gpu-1"), training_job("other", namespace="team-b", spec={"gpus": 8})]
    assert not plan(tmp_path, asked(gpus=8), *objects)["fits"]
    assert plan(tmp_path, asked(gpus=8), *objects, stored)["fits"]  # ml/asked is before team-b/other


REPLACED = [
    pytest.param({"gpus": 8}, [("gpu-1", list(range(8)))], None, True, id="the same"),
    pytest.param({"gpus": 16}, [("gpu-1", list(range(8))), ("gpu-2", list(range(8)))], None, False, id="more GPUs"),
    pytest.param({"gpus": 24}, [], "InsufficientGPUs", False, id="more than there are"),
    pytest.param({"gpus": 16, "network": {"rdma": "Required"}}, [], "RDMAUnavailable", False, id="RDMA"),
    pytest.param({"gpus": 4, "suspend": True}, [("gpu-1", [0, 1, 2, 3])], None, False, id="fewer, and suspended"),
]


@pytest.mark.parametrize(("spec", "nodes", "reason", "is_same"), REPLACED)
def test_the_file_of_a_booked_job_is_planned_in_its_place(
    tmp_path: Path, spec: dict[str, Any], nodes: list[tuple[str, list[int]]], reason: str | None, is_same: bool
) -> None:
    """What the job holds is told, and free to the job of the file, with the claims and Pods that hold it."""
    placement = booked(("gpu-2", range(8)))
    stored = training_job("asked", namespace="ml", spec={"gpus": 8}, placement=placement, state="Running", attempt=3)
    held = uuids("gpu-2", *range(8))
    pods = worker("asked", namespace="ml", node="gpu-2", gpus=held, attempt=3, job_uid="uid-of-asked")
    objects = [node("gpu-1"), node("gpu-2"), node_topology("gpu-1"), node_topology("gpu-2"), stored, pods]
    answer = plan(tmp_path, asked(**spec), *objects)
    assert answer["booked"] == {"nodes": ["gpu-2"], "gpus": 8, "sameSpec": is_same}
    assert (answer.get("pending", {}).get("reason"), answer["fits"]) == (reason, reason is None)
    assert not answer["fits"] or nodes_of(answer) == nodes
    shown = CliRunner().invoke(app, ["plan", "-f", str(tmp_path / "job"), "--cluster", str(tmp_path / "cluster")])
    holds = f"is placed already (8 GPUs on 1 node, gpu-2), with {'this' if is_same else 'another'} spec"
    fits = "fits" if answer["fits"] else "does not fit"
    said = " ".join(shown.stdout.split())
    assert said.startswith(f"ml/asked {holds}; if the job of the file replaced it: ml/asked {fits}: ")


def test_a_booking_whose_machine_is_gone_is_still_told(tmp_path: Path) -> None:
    stored = training_job("asked", namespace="ml", placement=booked(("gpu-9", [0, 1])))
    answer = plan(tmp_path, asked(gpus=2), node_topology("gpu-1"), stored)
    assert (nodes_of(answer), answer["booked"]["nodes"]) == ([("gpu-1", [0, 1])], ["gpu-9"])


ENDED = {"number": 1, "reason": "NodeChanged", "charged": False, "ended": "2026-11-21T12:00:00Z"}
OVER = [
    pytest.param({"conditions": [condition("Succeeded")], "placement": booked(("gpu-2", [0, 1]))}, id="finished"),
    pytest.param({"conditions": [condition("Suspended")], "attempt": 2}, id="suspended"),
    pytest.param({"attempt": 2, "attempts": [ENDED]}, id="restarting"),
]


@pytest.mark.parametrize("status", OVER)
def test_what_a_job_had_before_is_over(tmp_path: Path, status: dict[str, Any]) -> None:
    stored = training_job("asked", namespace="ml", **status)
    left = worker("asked", namespace="ml", node="gpu-1", gpus=uuids("gpu-1", 0, 1), job_uid="uid-of-asked")
    objects = [node("gpu-1", gpus=2), node_topology("gpu-1", count=2), stored, left]
    assert nodes_of(plan(tmp_path, asked(gpus=2), *objects)) == [("gpu-1", [0, 1])]


def test_objects_may_come_as_json_too(tmp_path: Path) -> None:
    items = [node("gpu-1"), node_topology("gpu-1")]
    for kind in ("List", "NodeList"):
        (tmp_path / "cluster").write_text(json.dumps({"apiVersion": "v1", "kind": kind, "items": items}))
        (tmp_path / "job").write_text(json.dumps(asked(gpus=8)))
        assert run(tmp_path / "job", tmp_path / "cluster")["fits"]


@pytest.mark.parametrize("is_stored", [False, True], ids=["gone by now", "still there"])
@pytest.mark.parametrize(
    "life",
    [
        pytest.param({"state": "Running", "placement": booked(("gpu-1", range(8))), "attempt": 2}, id="booked"),
        pytest.param({"conditions": [condition("Succeeded")], "attempt": 1}, id="succeeded"),
        pytest.param({"attempts": [ENDED, ENDED], "attempt": 3}, id="ended by others again and again"),
    ],
)
def test_a_job_copied_out_of_a_cluster_is_asked_about_anew(
    tmp_path: Path, life: dict[str, Any], is_stored: bool
) -> None:
    copied = training_job("asked", namespace="ml", spec={"gpus": 8}, **life)
    copied["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    objects = [node_topology("gpu-1"), *([copied] if is_stored else [])]
    assert nodes_of(plan(tmp_path, copied, *objects)) == [("gpu-1", list(range(8)))]


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("gpus", [4, 400], ids=["fits", "does not fit"])
def test_nothing_in_a_file_drives_the_terminal(tmp_path: Path, output: str, gpus: int) -> None:
    name = "gpu-1\x1b[2J\x9b\u202e\nforged"
    machine = node_topology(name, count=8)
    environment = [{"name": "TOKEN", "value": name}]
    template = {"spec": {"containers": [{"name": "trainer", "image": "i", "env": environment}]}}
    files = {"job.json": asked(gpus=gpus, template=template), "cluster.json": machine}
    for file, manifest in files.items():
        (tmp_path / file).write_text(json.dumps(manifest))
    arguments = ["-f", str(tmp_path / "job.json"), "--cluster", str(tmp_path / "cluster.json"), "-o", output]
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == (0 if gpus == 4 else 3), result.stderr
    lines = result.stdout.split("\n")
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("forged") for line in lines)


def test_a_mig_device_for_people(tmp_path: Path) -> None:
    nodes = [
        node("gpu-1", gpus=1, allocatable={"nvidia.com/mig-1g.18gb": "7"}),
        cut(node_topology("gpu-1", count=2), 0),
    ]
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(yaml.safe_dump_all(nodes))
    arguments = ["-f", str(EXAMPLES / "mig.yaml"), "--cluster", str(cluster)]
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "default/mig fits: 1 MIG device on 1 node",
        "NODE   GPUS               RANKS  BINDING     NICS",
        "gpu-1  0 (MIG-gpu-1-0-0)  0      BestEffort  -",
        "predicted all-reduce bus bandwidth: unknown",
        "limited by: one GPU has nothing to exchange",
        *UNCHECKED,
    ]


def test_who_would_have_to_go_for_a_job_of_higher_priority_is_told(tmp_path: Path) -> None:
    low = training_job("low", namespace="ml", spec={"gpus": 8}, attempt=1, placement=booked(("gpu-1", range(8))))
    objects = node("gpu-1"), node_topology("gpu-1"), priority_class("high", 100), low
    answer = plan(tmp_path, asked(priority="high", gpus=8), *objects)
    assert (answer["fits"], reason_of(answer)) == (False, "PreemptionPending")
    assert "ml/low makes room for it, by priority" in answer["pending"]["message"]
