"""What the user's own environment does to a job: it wins, it is warned of, and it can break nothing of ours."""

from typing import Any

import pytest

from closeknit.launch.environment import container_environment, environment
from closeknit.launch.harmful import Hazard
from unit.launch.test_environment import RDMA, gang

HARMFUL = [
    ("NCCL_ALGO", "Ring"),
    ("NCCL_PROTO", "LL128"),
    ("NCCL_MIN_NCHANNELS", "16"),
    ("NCCL_MAX_NCHANNELS", "16"),
    ("NCCL_P2P_LEVEL", "LOC"),
    ("NCCL_P2P_DISABLE", "1"),
    ("NCCL_SHM_DISABLE", "1"),
    ("NCCL_NET_GDR_LEVEL", "SYS"),
    ("NCCL_IB_GID_INDEX", "3"),
    ("NCCL_GRAPH_FILE", "/graph.xml"),
    ("NCCL_NVB_DISABLE", "1"),
    ("NCCL_PXN_DISABLE", "1"),
    ("NCCL_NVLS_ENABLE", "1"),
    ("NCCL_COLLNET_ENABLE", "1"),
    ("NCCL_IB_TIMEOUT", "22"),
    ("NCCL_IB_DISABLE", "1"),
    ("NCCL_IB_HCA", "mlx5_1"),
    ("NCCL_SOCKET_IFNAME", "^docker0"),
    ("NCCL_CUMEM_ENABLE", "0"),
    ("NCCL_COMM_ID", "10.0.0.1:4000"),
    ("NCCL_HOSTID", "a"),
    ("CUDA_VISIBLE_DEVICES", "4,5"),
    ("NVIDIA_VISIBLE_DEVICES", "all"),
    ("CUDA_DEVICE_ORDER", "FASTEST_FIRST"),
    ("NCCL_MULTI_RANK_GPU_ENABLE", "1"),
]
HARMLESS = [
    ("NCCL_P2P_DISABLE", "0"),
    ("NCCL_NET_GDR_LEVEL", "PHB"),
    ("NCCL_IB_GID_INDEX", "-1"),
    ("NCCL_NVLS_ENABLE", "0"),
    ("NCCL_IB_DISABLE", "0"),
    ("NCCL_IB_HCA", "=mlx5_1"),
    ("NCCL_IB_HCA", "^=mlx5_1"),
    ("NCCL_SOCKET_IFNAME", "^docker,lo,virbr,veth"),
    ("NCCL_SOCKET_IFNAME", "=eth0"),
    ("NCCL_CROSS_NIC", "1"),
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
    ("NCCL_DEBUG", "TRACE"),
    ("EPOCHS", "3"),
]


def hazards(*entries: dict[str, Any], **facts: Any) -> tuple[Hazard, ...]:
    return environment(gang(8, 8, trainer={"env": list(entries)}, **{**RDMA, **facts}), 0).hazards


@pytest.mark.parametrize(("name", "value"), HARMFUL)
def test_a_harmful_setting_is_kept_and_warned_of(name: str, value: str) -> None:
    of = gang(8, 8, trainer={"env": [{"name": name, "value": value}]}, **RDMA)
    (found,) = environment(of, 1).hazards
    assert str(found).startswith(f"{name}={value}: ")
    assert container_environment(of, 1)[name] == value


@pytest.mark.parametrize(("name", "value"), HARMLESS)
def test_other_settings_are_nobodys_business(name: str, value: str) -> None:
    assert hazards({"name": name, "value": value}) == ()


def test_crossing_isolated_rails_is_harmful() -> None:
    from closeknit.api.clustertopology import Fabric  # noqa: PLC0415

    (found,) = hazards({"name": "NCCL_CROSS_NIC", "value": "1"}, fabric=Fabric(rail_isolated=True))
    assert found.name == "NCCL_CROSS_NIC"


@pytest.mark.parametrize("value", ["SYS", "5"])
@pytest.mark.parametrize("facts", [{"has_c2c": True}, {"hides_levels": True}], ids=["C2C", "no PCIe tree"])
def test_gpus_may_reach_all_nics_where_every_nic_is_at_sys(facts: dict[str, bool], value: str) -> None:
    told = hazards({"name": "NCCL_NET_GDR_LEVEL", "value": value}, **facts)
    assert "NCCL_NET_GDR_LEVEL" not in {hazard.name for hazard in told}


def test_a_value_that_kubernetes_fills_in_later_is_taken_for_harmful() -> None:
    (found,) = hazards({"name": "NCCL_ALGO", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}})
    assert (found.value, str(found).partition(":")[0]) == (None, "NCCL_ALGO")


def test_the_last_of_a_name_counts_as_in_kubernetes() -> None:
    entries = ({"name": "NCCL_P2P_DISABLE", "value": "1"}, {"name": "NCCL_P2P_DISABLE", "value": "0"})
    assert hazards(*entries) == ()


def test_ten_thousand_variables_cost_little_and_warn_of_what_is_harmful_alone() -> None:
    many = [{"name": f"V{number}", "value": "x"} for number in range(10_000)]
    of = gang(*[1] * 64, trainer={"env": [*many, {"name": "NCCL_ALGO", "value": "Ring"}]}, **RDMA)
    found = [environment(of, index) for index in range(64)]
    assert {len(each.hazards) for each in found} == {1}
    assert of.users_environment(of.members[0].role) is of.users_environment(of.members[1].role)


@pytest.mark.parametrize("value", ["Ring\n\x1b[31m" + "R" * 5000, "\u202eRing"])
def test_a_hostile_value_is_cut_in_the_words(value: str) -> None:
    (found,) = hazards({"name": "NCCL_ALGO", "value": value})
    assert len(str(found)) < 400


@pytest.mark.parametrize(
    ("value", "is_told"), [("9", True), ("8", False), ("1", False), ("gpu", False), ("9" * 5000, True)]
)
def test_more_processes_than_gpus_are_told(value: str, is_told: bool) -> None:
    found = hazards({"name": "PET_NPROC_PER_NODE", "value": value})
    assert bool(found) is is_told


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["torchrun", "--nproc-per-node=9", "train.py"], "--nproc-per-node=9"),
        (["torchrun", "--nproc_per_node", "16", "train.py"], "--nproc-per-node=16"),
        (["sh", "-c", "cd /work && torchrun --nproc_per_node=9 train.py"], "--nproc-per-node=9"),
        (["torchrun", "--nproc-per-node=8", "train.py"], None),
        (["torchrun", "--nproc-per-node=gpu", "train.py"], None),
        (["torchrun", "--nproc-per-node=" + "9" * 5000], "--nproc-per-node=999999999"),
        (["train.py", 7, None], None),
        (7, None),
        ("torchrun", None),
    ],
)
def test_more_processes_than_gpus_in_the_command_are_told(command: Any, told: str | None) -> None:
    for field in ("command", "args"):
        found = environment(gang(8, 8, trainer={field: command}), 0).hazards
        assert [str(each).partition(":")[0] for each in found] == ([] if told is None else [told])


def test_reserved_names_of_the_users_win_and_are_told() -> None:
    names = ["PET_NODE_RANK", "MASTER_ADDR", "NCCL_NET"]
    of = gang(8, 8, trainer={"env": [{"name": name, "value": "mine"} for name in names]}, **RDMA)
    made = environment(of, 1)
    assert made.skipped == tuple(sorted(names))
    assert [variable.value for variable in made.overridden] == [
        "train-a2-worker-00000.train-a2.ml.svc",
        "IB",
        "1",
    ]
    assert [str(each) for each in made.hazards] == [
        "MASTER_ADDR=mine: ranks find each other by it, and closeknit would set train-a2-worker-00000.train-a2.ml.svc; "
        "leave it out",
        "PET_NODE_RANK=mine: ranks find each other by it, and closeknit would set another on each node; leave it out",
    ]
    assert environment(of, 0).hazards == made.hazards


@pytest.mark.parametrize(
    ("entry", "is_told"),
    [
        pytest.param({"value": "0"}, True, id="one rank for all nodes"),
        pytest.param({"valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}, False, id="of each Pod its own"),
    ],
)
def test_a_rank_that_every_pod_would_have_is_told(entry: dict[str, Any], is_told: bool) -> None:
    assert bool(hazards({"name": "PET_NODE_RANK", **entry})) is is_told


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("MASTER_PORT", "29500", id="what closeknit would set"),
        pytest.param("MASTER_ADDR", "$(PET_MASTER_ADDR)", id="what Kubernetes puts together"),
        pytest.param("TF_CONFIG", "{}", id="of another framework"),
        pytest.param("TORCH_NCCL_TRACE_BUFFER_SIZE", "20000", id="of the flight recorder"),
    ],
)
def test_a_reserved_name_that_changes_nothing_is_not_told(name: str, value: str) -> None:
    assert hazards({"name": name, "value": value}) == ()
