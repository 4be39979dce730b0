"""A framework is one file with a Contract and one line in CONTRACTS: shown with those that come next, each sketched.

What the sketches set is made up as far as this test needs it; what closeknit makes of it is not.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from closeknit.api.clustertopology import Fabric
from closeknit.api.names import Role
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import Framework
from closeknit.api.trainingjob_status import Binding
from closeknit.launch.children import children
from closeknit.launch.contract import Contract
from closeknit.launch.environment import container_environment
from closeknit.launch.frameworks import CONTRACTS
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.member import Member
from closeknit.launch.pod import pods
from closeknit.launch.service import service

GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def gang(framework: Framework, *servers: str) -> Gang:
    """Two workers with two GPUs each, and a parameter server on each of these nodes."""
    spec: dict[str, Any] = {
        "gpus": 4,
        "framework": framework,
        "template": {"spec": {"containers": [{"name": "main", "image": "train"}]}},
    }
    if servers:
        template = {"metadata": {"labels": {"on": "cpu"}}, "spec": {"containers": [{"name": "ps", "image": "serve"}]}}
        spec["parameterServers"] = {"replicas": len(servers), "template": template}
    job = TrainingJob.parse_strictly({"metadata": {"name": "train", "namespace": "ml", "uid": "u"}, "spec": spec})
    workers = (
        Member("node-0", 0, ("GPU-00", "GPU-01"), 0, Binding.WHOLE_NODE),
        Member("node-1", 1, ("GPU-10", "GPU-11"), 2, Binding.WHOLE_NODE),
    )
    on_cpus = tuple(Member(node, index, role=Role.PARAMETER_SERVER) for index, node in enumerate(servers))
    return Gang(job, 1, (*workers, *on_cpus), Fabric())


def build(monkeypatch: pytest.MonkeyPatch, framework: Framework, contract: Contract) -> None:
    monkeypatch.setitem(CONTRACTS, framework, contract)


def test_pytorch_has_a_service_and_nothing_else_beside_its_pods() -> None:
    of = gang(Framework.PYTORCH)
    assert children(of) == (service(of),)


def test_a_framework_that_is_not_built_gets_what_every_trainer_gets() -> None:
    of = gang(Framework.HOROVOD)
    assert children(of) == (service(of),)
    assert container_environment(of, 1) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NCCL_DEBUG": "WARN",
        "NCCL_NET": "Socket",
    }


def hostfile(of: Gang) -> Manifest:
    lines = "".join(f"{of.host(worker)} slots={worker.rank_count}\n" for worker in of.workers)
    metadata = of.metadata(f"{of.service}-hosts", of.labels, of.owner)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"hostfile": lines}}


def keys(of: Gang) -> Manifest:
    metadata = of.metadata(f"{of.service}-ssh", of.labels, of.owner)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/ssh-auth"}


def with_launcher(of: Gang, member: Member, spec: Manifest) -> Manifest:
    mounts = [{"name": "hosts", "mountPath": "/etc/mpi"}]
    containers = [
        {**spec["containers"][0], "volumeMounts": [*spec["containers"][0]["volumeMounts"], *mounts]},
        *({"name": "launcher", "image": container["image"]} for container in spec["containers"] if member.index == 0),
    ]
    volume = {"name": "hosts", "configMap": {"name": f"{of.service}-hosts"}}
    return {**spec, "containers": containers, "volumes": [*spec["volumes"], volume]}


def test_mpi_has_a_hostfile_in_rank_order_a_secret_and_a_launcher_at_node_rank_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contract = Contract(children=lambda of: (hostfile(of), keys(of)), containers=with_launcher)
    build(monkeypatch, Framework.MPI, contract)
    of = gang(Framework.MPI)
    assert [(child["kind"], child["metadata"]["name"]) for child in children(of)] == [
        ("Service", "train-a1"),
        ("ConfigMap", "train-a1-hosts"),
        ("Secret", "train-a1-ssh"),
    ]
    assert children(of)[1]["data"]["hostfile"] == (
        "train-a1-worker-00000.train-a1.ml.svc slots=2\ntrain-a1-worker-00001.train-a1.ml.svc slots=2\n"
    )
    assert {json.dumps(child["metadata"]["ownerReferences"]) for child in children(of)} == {json.dumps([of.owner])}
    first, second = (made["spec"] for made in pods(of, range(2)))
    assert [container["name"] for container in first["containers"]] == ["main", "launcher"]
    assert [container["name"] for container in second["containers"]] == ["main"]
    for spec in (first, second):
        assert [mount["name"] for mount in spec["containers"][0]["volumeMounts"]] == ["closeknit-shm", "hosts"]
        assert [volume["name"] for volume in spec["volumes"]] == ["closeknit-shm", "hosts"]


def test_parameter_servers_are_members_on_cpus_with_a_template_of_their_own() -> None:
    of = gang(Framework.TENSORFLOW, "cpu-0")
    _, second, server = pods(of, range(3))
    host = "train-a1-{}.train-a1.ml.svc:2222".format
    assert json.loads(container_environment(of, 2)["TF_CONFIG"]) == {
        "cluster": {"worker": [host("worker-00000"), host("worker-00001")], "ps": [host("ps-00000")]},
        "task": {"type": "ps", "index": 0},
    }
    assert json.loads(container_environment(of, 1)["TF_CONFIG"])["task"] == {"type": "worker", "index": 1}
    assert second["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert server["metadata"]["name"] == "train-a1-ps-00000"
    assert server["metadata"]["labels"] == {
        "on": "cpu",
        "closeknit.dev/job": "train",
        "closeknit.dev/attempt": "1",
        "closeknit.dev/role": "ps",
        "closeknit.dev/index": "0",
    }
    assert "annotations" not in server["metadata"]
    (container,) = server["spec"]["containers"]
    assert (container["image"], container["resources"]) == ("serve", {})
    assert [variable["name"] for variable in container["env"]] == ["TF_CONFIG"]
    assert second["spec"]["tolerations"] == [GPU_TOLERATION]
    assert not {"tolerations", "resourceClaims", "schedulingGates"} & set(server["spec"])


def test_servers_are_no_ranks() -> None:
    of = gang(Framework.CUSTOM, "cpu-0", "cpu-1")
    first, second, *servers = (container_environment(of, index) for index in range(4))
    meeting = {"MASTER_ADDR": "train-a1-worker-00000.train-a1.ml.svc", "MASTER_PORT": "29500", "WORLD_SIZE": "4"}
    assert {name: first[name] for name in meeting} == meeting
    assert [each["RANK"] for each in (first, second)] == ["0", "2"]
    assert [each["NODE_RANK"] for each in (first, second)] == ["0", "1"]
    assert [each["LOCAL_WORLD_SIZE"] for each in (first, second)] == ["2", "2"]
    assert servers == [meeting, meeting]


def test_one_worker_beside_servers_has_nobody_to_talk_to_over_rdma() -> None:
    two = gang(Framework.CUSTOM, "cpu-0")
    alone, server = (
        replace(member, nics=("mlx5_0:1",), rdma_resource="rdma/hca") for member in (two.members[0], two.members[-1])
    )
    assert not replace(two, members=(alone, server)).uses_rdma
    assert replace(two, members=(alone, replace(alone, node="node-1", index=1), server)).uses_rdma
