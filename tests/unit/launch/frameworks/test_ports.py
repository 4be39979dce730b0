"""Ports of Pods on their nodes' network: no two jobs on a node have the same."""

import json
from itertools import pairwise
from typing import Any

import pytest

from closeknit.api.clustertopology import Fabric
from closeknit.api.nodetopology import MAX_GPUS_PER_NODE, Transport
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import Framework
from closeknit.api.trainingjob_status import Binding
from closeknit.launch.environment.environment import container_environment
from closeknit.launch.frameworks import jax, pytorch, ssh, tensorflow
from closeknit.launch.gang import Gang
from closeknit.launch.manifests import preflight_container
from closeknit.launch.manifests.children import children
from closeknit.launch.manifests.pod_manifest import pods
from closeknit.launch.member import Member

HOSTS = [f"train-a1-worker-0000{index}.train-a1.ml.svc" for index in range(2)]


def gang(framework: Framework, *, allow_host_network: bool = True, **template: Any) -> Gang:
    """GPUs 4 and 5 of one node, 6 and 7 of another, over shared RoCE NICs; `template` is what its Pods have besides."""
    spec: dict[str, Any] = {
        "gpus": 4,
        "framework": framework,
        "preflight": "Warn",
        "network": {"allowHostNetwork": allow_host_network},
        "template": {"spec": {"containers": [{"name": "trainer", "image": "train"}], **template}},
    }
    job = TrainingJob.parse_strictly({"metadata": {"name": "train", "namespace": "ml", "uid": "u"}, "spec": spec})
    members = tuple(
        Member(
            f"node-{index}",
            index,
            (f"GPU-{index}0", f"GPU-{index}1"),
            2 * index,
            Binding.DRA,
            nics=("mlx5_0:1",),
            rdma_resource="rdma/hca",
            transport=Transport.ROCE,
            lowest_gpu=lowest,
        )
        for index, lowest in enumerate((4, 6))
    )
    return Gang(job, 1, members, Fabric())


@pytest.mark.parametrize(
    ("framework", "name", "there", "elsewhere"),
    [
        (Framework.PYTORCH, "PET_MASTER_PORT", "29504", "29500"),
        (Framework.PYTORCH, "MASTER_PORT", "29504", "29500"),
        (Framework.DEEPSPEED, "MASTER_PORT", "29504", "29500"),
        (Framework.CUSTOM, "MASTER_PORT", "29504", "29500"),
        (Framework.JAX, "JAX_COORDINATOR_ADDRESS", f"{HOSTS[0]}:55531", f"{HOSTS[0]}:55527"),
    ],
)
def test_where_ranks_meet_follows_from_the_gpus_of_node_rank_0(
    framework: Framework, name: str, there: str, elsewhere: str
) -> None:
    for index in range(2):
        assert container_environment(gang(framework), index)[name] == there
        assert container_environment(gang(framework, allow_host_network=False), index)[name] == elsewhere


@pytest.mark.parametrize(("said", "port"), [(True, "29504"), (False, "29500"), ("true", "29500")])
def test_a_template_that_says_so_itself_is_on_the_network_of_its_nodes(said: object, port: str) -> None:
    of = gang(Framework.PYTORCH, allow_host_network=False, hostNetwork=said)
    assert container_environment(of, 0)["MASTER_PORT"] == port
    assert [made["spec"].get("dnsPolicy") for made in pods(of, (0, 1))] == (
        ["ClusterFirstWithHostNet"] * 2 if said is True else [None] * 2
    )


def test_names_of_a_gang_are_worked_out_once_however_many_pods_are_told_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2,048 nodes they took twenty seconds of a decision."""
    of, host = gang(Framework.TENSORFLOW), Gang.host
    named: list[Member] = []

    def counted(self: Gang, member: Member) -> str:
        named.append(member)
        return host(self, member)

    monkeypatch.setattr(Gang, "host", counted)
    pods(of, (0, 1, 0, 1, 0, 1))
    assert len(named) == len(of.members) + 1  # and of the one where all meet


def test_every_task_of_tensorflow_has_the_port_of_its_own_gpus() -> None:
    config = json.loads(container_environment(gang(Framework.TENSORFLOW), 1)["TF_CONFIG"])
    assert config["cluster"]["worker"] == [f"{HOSTS[0]}:2226", f"{HOSTS[1]}:2228"]


def test_sshd_has_the_port_of_its_own_gpus_and_ssh_knows_all() -> None:
    of = gang(Framework.MPI)
    server = pods(of, (1,))[0]["spec"]["containers"][0]
    assert server["command"] == ["/bin/sh", "/etc/closeknit/serve.sh", "2228"]
    (config,) = children(of).of_service
    said = config["data"]["ssh_config"]
    assert said.startswith(f"Host {HOSTS[0]}\n  Port 2226\nHost {HOSTS[1]}\n  Port 2228\nHost *\n  Port 2222\n")
    assert "Port" not in config["data"]["sshd_config"]


def test_interfaces_of_a_nodes_network_are_not_named() -> None:
    assert "HYDRA_IFACE" not in container_environment(gang(Framework.MPI), 0)
    assert container_environment(gang(Framework.MPI, allow_host_network=False), 0)["HYDRA_IFACE"] == "eth0"


def test_a_preflight_meets_at_a_port_of_its_own() -> None:
    (container,) = pods(gang(Framework.PYTORCH), (1,))[0]["spec"]["initContainers"]
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    assert env["CLOSEKNIT_PREFLIGHT_MEET"] == f"{HOSTS[0]}:29304"


def test_the_usual_ports_are_so_far_apart_that_no_gpu_leads_from_one_to_another() -> None:
    """TensorFlow's tasks and sshd have the same: a job is of one framework."""
    usual = sorted(
        {preflight_container.PORT, pytorch.MASTER_PORT, pytorch.RENDEZVOUS_PORT, jax.COORDINATOR_PORT, ssh.PORT}
    )
    assert tensorflow.PORT == ssh.PORT
    assert all(above - below >= MAX_GPUS_PER_NODE for below, above in pairwise(usual))
