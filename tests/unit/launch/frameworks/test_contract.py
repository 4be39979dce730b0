"""What each framework's contract adds to a gang beside variables; tests/contracts asks the frameworks themselves."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from closeknit.api.clustertopology import Fabric, SriovNetwork
from closeknit.api.names import Role
from closeknit.api.nodetopology import Transport
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import Framework, TrainingJobSpec
from closeknit.api.trainingjob_status import Binding
from closeknit.launch.environment.environment import container_environment
from closeknit.launch.gang import Gang
from closeknit.launch.manifests.children import Children, children
from closeknit.launch.manifests.pod_manifest import pods
from closeknit.launch.manifests.service import service
from closeknit.launch.member import Member
from closeknit.launch.template import SHM_PATH

FIRST, SECOND = (f"train-a1-worker-0000{index}.train-a1.ml.svc" for index in range(2))
GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def gang(framework: Framework, *servers: str, networks: str = "", **network: Any) -> Gang:
    """Two workers with two GPUs each, and a parameter server on each of these nodes."""
    annotations = {"k8s.v1.cni.cncf.io/networks": networks} if networks else {}
    spec: dict[str, Any] = {
        "gpus": 4,
        "framework": framework,
        "network": network,
        "template": {
            "metadata": {"annotations": annotations},
            "spec": {"containers": [{"name": "main", "image": "train"}]},
        },
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


def with_pod(of: Gang, servers: dict[str, Any] | None = None, **fields: Any) -> Gang:
    """The gang whose template has these fields, too, and that of its parameter servers those of `servers`."""
    spec = of.job.spec.wire()
    spec["template"]["spec"] |= fields
    if servers is not None:
        spec["parameterServers"]["template"]["spec"] |= servers
    return replace(of, job=of.job.model_copy(update={"spec": TrainingJobSpec.parse_strictly(spec)}))


@pytest.mark.parametrize("framework", [Framework.PYTORCH, Framework.TENSORFLOW, Framework.JAX])
def test_most_have_a_service_and_nothing_else_beside_their_pods(framework: Framework) -> None:
    of = gang(framework)
    assert children(of) == Children(service(of))


@pytest.mark.parametrize(
    ("framework", "files"),
    [
        (Framework.DEEPSPEED, {"hostfile": f"{FIRST} slots=2\n{SECOND} slots=2\n"}),
        (Framework.CUSTOM, {"ranks": f"0 2 {FIRST}\n2 2 {SECOND}\n"}),
    ],
)
def test_files_are_a_config_map_that_goes_with_the_service(framework: Framework, files: dict[str, str]) -> None:
    of = gang(framework)
    (config,) = children(of).of_service
    assert (config["kind"], config["data"], config["immutable"]) == ("ConfigMap", files, True)
    assert "ownerReferences" not in config["metadata"]
    assert config["metadata"]["labels"] == {"closeknit.dev/job": "train", "closeknit.dev/attempt": "1"}
    for made in pods(of, range(2)):
        assert made["spec"]["volumes"][-1] == {
            "name": "closeknit-files",
            "configMap": {"name": config["metadata"]["name"]},
        }
        assert made["spec"]["containers"][0]["volumeMounts"][-1] == {
            "name": "closeknit-files",
            "mountPath": "/etc/closeknit",
            "readOnly": True,
        }


def test_other_files_have_another_name() -> None:
    """An attempt that is taken back begins again under its number, perhaps with other shares."""
    of = gang(Framework.CUSTOM)
    first, second = of.members
    fewer = replace(of, members=(first, replace(second, uuids=("GPU-10",))))
    names = {each.of_service[0]["metadata"]["name"] for each in (children(of), children(fewer))}
    assert len(names) == 2
    assert all(re.fullmatch("train-a1-[0-9a-f]{10}", name) for name in names)
    assert children(gang(Framework.CUSTOM)) == children(of)


@pytest.mark.parametrize("framework", [Framework.MPI, Framework.HOROVOD])
def test_over_ssh_the_first_launches_and_the_others_serve(framework: Framework) -> None:
    of = gang(framework)
    (secret,) = children(of).of_job
    assert secret["metadata"] == {
        "name": "train-ssh-u",
        "namespace": "ml",
        "labels": {"closeknit.dev/job": "train"},
        "ownerReferences": [of.owner],
    }
    assert "data" not in secret and "stringData" not in secret
    (config,) = children(of).of_service
    assert config["data"]["hostfile"] == f"{FIRST} slots=2\n{SECOND} slots=2\n"
    assert config["data"]["machinefile"] == f"{FIRST}:2\n{SECOND}:2\n"
    first, second = (made["spec"] for made in pods(of, range(2)))
    (launcher,), (server,) = first["containers"], second["containers"]
    assert "command" not in launcher  # the user's own, which is the image's here
    assert server["command"] == ["/bin/sh", "/etc/closeknit/serve.sh", "2222"]
    for spec, role in ((first, "wait"), (second, "serve")):
        (container,) = spec["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert paths == [SHM_PATH, "/etc/closeknit", "/run/closeknit", "/etc/closeknit-keys", "/etc/ssh/ssh_config"]
        (prepare,) = spec["initContainers"]
        assert prepare["command"] == ["/bin/sh", "/etc/closeknit/prepare.sh", role]
        assert (prepare["image"], prepare["resources"]) == ("train", {})
        assert prepare["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert volumes["closeknit-keys"]["secret"] == {"secretName": "train-ssh-u", "defaultMode": 0o444}


def test_horovods_ranks_may_load_their_libraries_at_different_speeds() -> None:
    """By itself it gives up after 30 s, which two nodes with a cold cache of files have differed by."""
    found = container_environment(gang(Framework.HOROVOD), 1)
    assert (found["HOROVOD_START_TIMEOUT"], found["HOROVOD_GLOO_TIMEOUT_SECONDS"]) == ("300", "300")


ONE_INTERFACE = {
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "OMPI_MCA_oob_tcp_if_include": "eth0",
    "PRTE_MCA_prte_if_include": "eth0",
}
ROCE: dict[str, Any] = {"nics": ("mlx5_0:1", "mlx5_3:1"), "rdma_resource": "rdma/hca", "transport": Transport.ROCE}
RAIL = SriovNetwork(resource="nvidia.com/rail0", network="default/rail0")
FUNCTIONS = ROCE | {"rdma_resource": f"k8s.v1.cni.cncf.io/{RAIL.resource}", "functions": (RAIL,)}
UNOFFERED = {"usable": frozenset({Transport.ROCE})}


@pytest.mark.parametrize(
    ("networks", "facts", "expected"),
    [
        pytest.param("", {}, {}, id="one interface"),
        pytest.param("rail0", {}, ONE_INTERFACE | {"UCX_NET_DEVICES": "eth0"}, id="over sockets"),
        pytest.param(
            "rail0", ROCE, ONE_INTERFACE | {"UCX_NET_DEVICES": "mlx5_0:1,mlx5_3:1,eth0"}, id="over the Pods' NICs"
        ),
        pytest.param("", FUNCTIONS, ONE_INTERFACE, id="over functions of them, which have other names"),
        pytest.param("rail0", UNOFFERED, ONE_INTERFACE, id="over NICs that only the template knows of"),
    ],
)
def test_mpis_own_data_goes_where_all_nodes_are(networks: str, facts: dict[str, Any], expected: dict[str, str]) -> None:
    of = gang(Framework.MPI, networks=networks)
    of = replace(of, members=tuple(replace(member, **facts) for member in of.members))
    found = container_environment(of, 1)
    assert {name: value for name, value in found.items() if "_if_include" in name or "UCX" in name} == expected
    alone = container_environment(replace(of, members=of.members[:1]), 0)
    assert not [name for name in alone if "_if_include" in name or "UCX" in name]


def test_on_the_nodes_network_mpis_interfaces_are_not_named() -> None:
    of = gang(Framework.MPI, allowHostNetwork=True)
    of = replace(of, members=tuple(replace(member, **ROCE) for member in of.members))
    assert of.on_host_network
    assert not [name for name in container_environment(of, 0) if "_if_include" in name or "IFACE" in name]


def test_a_server_has_nothing_of_the_launchers_command() -> None:
    container = {
        "name": "main",
        "image": "train",
        "command": ["mpirun"],
        "args": ["train"],
        "livenessProbe": {"exec": {"command": ["pgrep", "mpirun"]}},
        "resources": {"limits": {"cpu": "8", "memory": "64Gi", "example.com/disk": "1"}},
        "securityContext": {"runAsUser": 1000},
    }
    of = with_pod(gang(Framework.MPI), containers=[container])
    first, second = (made["spec"] for made in pods(of, range(2)))
    assert (first["containers"][0]["command"], first["containers"][0]["args"]) == (["mpirun"], ["train"])
    assert not {"args", "livenessProbe"} & set(second["containers"][0])
    (prepare,) = second["initContainers"]
    assert prepare["resources"] == {"limits": {"cpu": "8", "memory": "64Gi"}}
    assert prepare["securityContext"] == {"runAsUser": 1000}


def test_a_gang_on_one_node_needs_no_ssh() -> None:
    of = gang(Framework.MPI)
    alone = replace(of, members=of.members[:1])
    assert children(alone).of_job == ()
    (made,) = pods(alone, (0,))
    assert "initContainers" not in made["spec"]
    assert [volume["name"] for volume in made["spec"]["volumes"]] == ["closeknit-shm", "closeknit-files"]


def test_parameter_servers_are_members_on_cpus_with_a_template_of_their_own() -> None:
    of = gang(Framework.TENSORFLOW, "node-0", "node-1")
    _, second, server, _ = pods(of, range(4))
    host = "train-a1-{}.train-a1.ml.svc:2222".format
    workers = [host("worker-00000"), host("worker-00001")]
    assert json.loads(container_environment(of, 3)["TF_CONFIG"]) == {
        "cluster": {"worker": workers, "chief": [host("ps-00000")], "ps": [host("ps-00001")]},
        "task": {"type": "ps", "index": 0},
    }
    assert json.loads(container_environment(of, 2)["TF_CONFIG"])["task"] == {"type": "chief", "index": 0}
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
    assert [variable["name"] for variable in container["env"]] == ["NVIDIA_VISIBLE_DEVICES", "TF_CONFIG"]
    assert second["spec"]["tolerations"] == [GPU_TOLERATION]
    assert server["spec"]["tolerations"] == [GPU_TOLERATION]  # it shares the node of a worker
    assert not {"resourceClaims", "schedulingGates"} & set(server["spec"])


def test_servers_are_no_ranks() -> None:
    of = gang(Framework.CUSTOM, "cpu-0", "cpu-1")
    first, second, *servers = (container_environment(of, index) for index in range(4))
    meeting = {"MASTER_ADDR": "train-a1-worker-00000.train-a1.ml.svc", "MASTER_PORT": "29500", "WORLD_SIZE": "4"}
    assert {name: first[name] for name in meeting} == meeting
    assert [each["RANK"] for each in (first, second)] == ["0", "2"]
    assert [each["NODE_RANK"] for each in (first, second)] == ["0", "1"]
    assert [each["LOCAL_WORLD_SIZE"] for each in (first, second)] == ["2", "2"]
    assert servers == [{"NVIDIA_VISIBLE_DEVICES": "void", **meeting, "SERVER_RANK": rank} for rank in "01"]
    (config,) = children(of).of_service
    hosts = [f"train-a1-ps-0000{rank}.train-a1.ml.svc" for rank in range(2)]
    assert config["data"]["servers"].split() == hosts


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"kubernetes.io/arch": "arm64"}},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]}
                        ]
                    }
                }
            }
        },
    ],
    ids=["nodeSelector", "affinity"],
)
def test_a_template_that_requires_an_architecture_tolerates_its_taint(spec: dict[str, Any]) -> None:
    """Arm nodes of GKE and ACK have it, and both add the toleration to such a Pod themselves."""
    of = gang(Framework.CUSTOM, "node-0")
    of.job.spec.template.spec.update(spec)
    arm = {"key": "kubernetes.io/arch", "operator": "Equal", "effect": "NoSchedule", "value": "arm64"}
    assert [made["spec"]["tolerations"] for made in pods(of, range(3))] == [[GPU_TOLERATION, arm]] * 3


def test_a_server_tolerates_what_its_worker_does() -> None:
    taint = {"key": "example.com/reserved", "operator": "Exists"}
    own = {"key": "example.com/own", "operator": "Exists"}
    of = with_pod(gang(Framework.CUSTOM, "node-0"), {"tolerations": [own]}, tolerations=[taint])
    worker, _, server = (made["spec"]["tolerations"] for made in pods(of, range(3)))
    assert (worker, server) == ([taint, GPU_TOLERATION], [own, taint, GPU_TOLERATION])


def test_one_worker_beside_servers_has_nobody_to_talk_to_over_rdma() -> None:
    two = gang(Framework.CUSTOM, "cpu-0")
    alone, server = (
        replace(member, nics=("mlx5_0:1",), rdma_resource="rdma/hca") for member in (two.members[0], two.members[-1])
    )
    assert not replace(two, members=(alone, server)).uses_rdma
    assert replace(two, members=(alone, replace(alone, node="node-1", index=1), server)).uses_rdma
