"""What closeknit sets in a trainer, fact by fact, and what it leaves to the user."""

from dataclasses import replace
from typing import Any

import pytest

from closeknit.api.clustertopology import Fabric
from closeknit.api.nodetopology import Transport
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import Binding
from closeknit.launch.environment.environment import container_environment, environment
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member

NICS = ("mlx5_0:1", "mlx5_3:1")
RDMA: dict[str, Any] = {"nics": NICS, "rdma_resource": "rdma/hca", "transport": Transport.INFINIBAND}
IB, EFA = frozenset({Transport.INFINIBAND}), frozenset({Transport.EFA})
ROCE: dict[str, Any] = {**RDMA, "transport": Transport.ROCE}
NETWORK = {"NCCL_NET", "NCCL_MNNVL_ENABLE", "NCCL_IB_HCA", "NCCL_CROSS_NIC", "NCCL_IB_QPS_PER_CONNECTION"}


def gang(
    *shares: int,
    fabric: Fabric | None = None,
    trainer: dict[str, Any] | None = None,
    pod: dict[str, Any] | None = None,
    rdma: str = "Preferred",
    **net: Any,
) -> Gang:
    """A gang with so many GPUs on each node, all nodes with the same NICs."""
    container = {"name": "trainer", "image": "pytorch", **(trainer or {})}
    template = {"spec": {"containers": [container], **(pod or {})}}
    job = TrainingJob.parse_strictly(
        {
            "metadata": {"name": "train", "namespace": "ml", "uid": "job-uid"},
            "spec": {"gpus": sum(shares), "template": template, "network": {"rdma": rdma}},
        }
    )
    nodes = tuple(
        Member(
            node=f"node-{index}",
            index=index,
            uuids=tuple(f"GPU-{index}{gpu}" for gpu in range(share)),
            first_rank=sum(shares[:index]),
            binding=Binding.WHOLE_NODE,
            **net,
        )
        for index, share in enumerate(shares)
    )
    return Gang(job, 2, nodes, fabric or Fabric())


def values(gang: Gang, index: int = 0) -> dict[str, str]:
    return {variable.name: variable.value for variable in environment(gang, index).variables}


def test_a_gang_of_two_nodes_over_rdma_gets_exactly_these_variables_in_this_order() -> None:
    assert list(values(gang(8, 8, **RDMA), 1).items()) == [
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        ("NCCL_DEBUG", "WARN"),
        ("NCCL_NET", "IB"),
        ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_3:1"),
        ("PET_NNODES", "2"),
        ("PET_NPROC_PER_NODE", "8"),
        ("PET_NODE_RANK", "1"),
        ("PET_MASTER_ADDR", "train-a2-worker-00000.train-a2.ml.svc"),
        ("PET_MASTER_PORT", "29500"),
        ("MASTER_ADDR", "train-a2-worker-00000.train-a2.ml.svc"),
        ("MASTER_PORT", "29500"),
        ("CLOSEKNIT_WORLD_SIZE", "16"),
        ("CLOSEKNIT_FIRST_RANK", "8"),
        ("CLOSEKNIT_LOCAL_WORLD_SIZE", "8"),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "1"),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"),
    ]


ISOLATED = Fabric(rail_isolated=True)
HASHED = Fabric(ecmp=True, qps_per_connection=4)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        pytest.param(gang(4), {}, id="one node: nothing about the network"),
        pytest.param(gang(4, fabric=ISOLATED, **RDMA), {}, id="one node with NICs: nothing about the network"),
        pytest.param(
            gang(8, 8, **RDMA),
            {"NCCL_NET": "IB", "NCCL_IB_HCA": "=mlx5_0:1,mlx5_3:1"},
            id="InfiniBand: the net is pinned, the NICs are named exactly",
        ),
        pytest.param(
            gang(8, 8, **ROCE),
            {"NCCL_NET": "IB", "NCCL_IB_HCA": "=mlx5_0:1,mlx5_3:1"},
            id="RoCE: as InfiniBand, and no GID index",
        ),
        pytest.param(
            gang(8, 8, fabric=HASHED, **ROCE),
            {"NCCL_NET": "IB", "NCCL_IB_HCA": "=mlx5_0:1,mlx5_3:1", "NCCL_IB_QPS_PER_CONNECTION": "4"},
            id="RoCE over ECMP: the site's queue pairs",
        ),
        pytest.param(
            gang(8, 8, fabric=Fabric(ecmp=True), **ROCE),
            {"NCCL_NET": "IB", "NCCL_IB_HCA": "=mlx5_0:1,mlx5_3:1"},
            id="RoCE over ECMP without a declared number: nothing",
        ),
        pytest.param(
            gang(8, 8, fabric=HASHED, **RDMA),
            {"NCCL_NET": "IB", "NCCL_IB_HCA": "=mlx5_0:1,mlx5_3:1"},
            id="InfiniBand does not hash flows: no queue pairs",
        ),
        pytest.param(
            gang(8, 8, fabric=ISOLATED, **RDMA),
            {"NCCL_NET": "IB", "NCCL_IB_HCA": "=mlx5_0:1,mlx5_3:1", "NCCL_CROSS_NIC": "0"},
            id="isolated rails: no crossing",
        ),
        pytest.param(gang(8, 8), {"NCCL_NET": "Socket"}, id="no NICs: sockets, said aloud"),
        pytest.param(gang(8, 8, usable=IB), {}, id="NICs that no resource exposes to Pods: NCCL finds what is there"),
        pytest.param(gang(8, 8, usable=EFA), {}, id="EFA: NCCL's plugin finds it"),
        pytest.param(gang(8, 8, usable=IB, rdma="Disabled"), {"NCCL_NET": "Socket"}, id="NICs that the job forgoes"),
        pytest.param(
            gang(4, 4, nvlink_domain="c0ffee.1", **RDMA),
            {"NCCL_NET": "IB", "NCCL_IB_HCA": "=mlx5_0:1,mlx5_3:1", "NCCL_MNNVL_ENABLE": "0"},
            id="trays of one NVLink domain: no NVLink between them",
        ),
        pytest.param(gang(4, nvlink_domain="c0ffee.1"), {}, id="one tray: nothing"),
    ],
)
def test_network_variables_follow_the_facts(of: Gang, expected: dict[str, str]) -> None:
    assert {name: value for name, value in values(of).items() if name in NETWORK} == expected


def test_one_node_without_rdma_puts_every_node_on_sockets() -> None:
    with_rdma = gang(8, 8, **RDMA)
    mixed = Gang(with_rdma.job, 2, (with_rdma.members[0], gang(8, 8).members[1]), Fabric())
    assert [values(mixed, index)["NCCL_NET"] for index in (0, 1)] == ["Socket", "Socket"]
    assert "NCCL_IB_HCA" not in values(mixed, 0)


def of_nodes(*facts: dict[str, Any]) -> Gang:
    """A gang of as many nodes, each with facts of its own."""
    alike = gang(*([4] * len(facts)))
    members = tuple(replace(member, **own) for member, own in zip(alike.members, facts, strict=True))
    return Gang(alike.job, 2, members, Fabric())


@pytest.mark.parametrize(
    ("facts", "net"),
    [
        ([{"usable": IB}, {"usable": IB | EFA}], None),
        ([{"usable": IB, **RDMA}, {"usable": IB}], None),
        ([{"usable": IB}, {"usable": EFA}], "Socket"),
        ([{"usable": IB}, {"usable": frozenset()}], "Socket"),
    ],
    ids=["one in common", "one of them offered", "none in common", "one without NICs"],
)
def test_all_ranks_speak_one_net(facts: list[dict[str, Any]], net: str | None) -> None:
    of = of_nodes(*facts)
    assert [values(of, index).get("NCCL_NET") for index in (0, 1)] == [net, net]


@pytest.mark.parametrize(
    ("domains", "expected"),
    [(["d1", "d2", "d1"], "0"), (["d1", "d2", "d3"], None), ([None, None, "d1"], None)],
    ids=["two share", "none share", "two have none"],
)
def test_nvlink_between_nodes_is_kept_out_on_every_node_alike(domains: list[str | None], expected: str | None) -> None:
    of = of_nodes(*({"nvlink_domain": domain} for domain in domains))
    assert [values(of, index).get("NCCL_MNNVL_ENABLE") for index in (0, 1, 2)] == [expected] * 3


def test_a_user_who_brings_imex_channels_says_so() -> None:
    own = {"env": [{"name": "NCCL_MNNVL_ENABLE", "value": "2"}]}
    found = environment(gang(4, 4, trainer=own, nvlink_domain="d1"), 0)
    assert found.skipped == ("NCCL_MNNVL_ENABLE",)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param({"limits": {"cpu": "96"}}, "12", id="limit: CPUs over ranks"),
        pytest.param({"requests": {"cpu": 32}}, "4", id="request where there is no limit"),
        pytest.param({"limits": {"cpu": "16"}, "requests": {"cpu": "8"}}, "2", id="the limit before the request"),
        pytest.param({"limits": {"cpu": "15900m"}}, "1", id="whole CPUs, whole threads"),
        pytest.param({"limits": {"cpu": 0.5}}, "1", id="never less than one"),
        pytest.param({"limits": {"memory": "1Ti"}}, None, id="no CPUs asked for: left to torchrun"),
        pytest.param({"limits": {"cpu": "many"}}, None, id="no quantity: left to the API server"),
        pytest.param({"limits": {"cpu": "9" * 5000}}, None, id="an endless number: left to the API server"),
        pytest.param({"limits": {"cpu": 0}, "requests": {"cpu": "32"}}, "4", id="a limit of 0 is none"),
        pytest.param(None, None, id="resources: null"),
    ],
)
def test_threads_follow_the_containers_cpus(resources: object, expected: str | None) -> None:
    assert values(gang(8, trainer={"resources": resources})).get("OMP_NUM_THREADS") == expected


@pytest.mark.parametrize(
    ("container", "pod", "expected"),
    [
        pytest.param({}, {"limits": {"cpu": "64"}}, "8", id="the Pod's as a whole"),
        pytest.param({"limits": {"cpu": "32"}}, {"limits": {"cpu": "64"}}, "4", id="the container's own limit"),
        pytest.param({"requests": {"cpu": "8"}}, {"limits": {"cpu": "64"}}, "8", id="a limit before any request"),
        pytest.param({}, {"requests": {"cpu": "16"}}, "2", id="the Pod's request"),
        pytest.param({}, {"limits": {"cpu": []}}, None, id="a list: left to the API server"),
    ],
)
def test_threads_follow_the_pods_cpus_where_the_container_has_none(
    container: dict[str, Any], pod: dict[str, Any], expected: str | None
) -> None:
    of = gang(8, trainer={"resources": container}, pod={"resources": pod})
    assert values(of).get("OMP_NUM_THREADS") == expected


def test_nodes_with_unequal_shares_tell_torchrun_each_its_own() -> None:
    of = gang(3, 5)
    assert [values(of, index)["PET_NPROC_PER_NODE"] for index in (0, 1)] == ["3", "5"]


# The decision table's column of things left alone, and its list of what must never be emitted in production.
LEFT_ALONE = """
    RANK WORLD_SIZE LOCAL_RANK PET_RDZV_BACKEND CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES
    NCCL_SOCKET_IFNAME NCCL_IB_GID_INDEX NCCL_IB_TC NCCL_IB_SL NCCL_IB_TIMEOUT NCCL_IB_DISABLE NCCL_IB_ADAPTIVE_ROUTING
    NCCL_ALGO NCCL_PROTO NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_BUFFSIZE NCCL_NTHREADS NCCL_P2P_LEVEL
    NCCL_P2P_DISABLE NCCL_SHM_DISABLE NCCL_CUMEM_ENABLE NCCL_NVLS_ENABLE NCCL_NET_GDR_LEVEL NCCL_DMABUF_ENABLE
    NCCL_PXN_DISABLE NCCL_NVB_DISABLE NCCL_COLLNET_ENABLE NCCL_GRAPH_FILE NCCL_TOPO_FILE NCCL_MNNVL_ENABLE
"""


def test_what_should_be_left_alone_is_left_alone() -> None:
    everything = gang(8, 8, fabric=Fabric(rail_isolated=True, ecmp=True, qps_per_connection=2), **ROCE)
    assert sorted(set(LEFT_ALONE.split()) & set(values(everything))) == []


def test_every_variable_says_why() -> None:
    found = environment(gang(8, 8, trainer={"resources": {"limits": {"cpu": "96"}}}, **RDMA), 0).variables
    assert [variable.name for variable in found if not variable.why] == []


USERS = [
    {"name": "NCCL_IB_HCA", "value": "mlx5_9"},
    {"name": "MASTER_PORT", "valueFrom": {"configMapKeyRef": {"name": "ports", "key": "master"}}},
    {"name": "NCCL_DEBUG"},
    {"name": "EPOCHS", "value": "3"},
]


def test_the_users_own_value_wins_and_the_skip_is_recorded() -> None:
    found = environment(gang(8, 8, trainer={"env": USERS}, **RDMA), 1)
    assert found.skipped == ("MASTER_PORT", "NCCL_DEBUG", "NCCL_IB_HCA")
    assert not {variable.name for variable in found.variables} & {"MASTER_PORT", "NCCL_DEBUG", "NCCL_IB_HCA", "EPOCHS"}


def test_the_flat_environment_holds_ours_and_the_users() -> None:
    flat = container_environment(gang(2, trainer={"env": USERS}), 0)
    assert flat == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PET_NNODES": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": "train-a2-worker-00000.train-a2.ml.svc",
        "PET_MASTER_PORT": "29500",
        "MASTER_ADDR": "train-a2-worker-00000.train-a2.ml.svc",
        "CLOSEKNIT_WORLD_SIZE": "2",
        "CLOSEKNIT_FIRST_RANK": "0",
        "CLOSEKNIT_LOCAL_WORLD_SIZE": "2",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "NCCL_IB_HCA": "mlx5_9",
        "MASTER_PORT": "<configMapKeyRef>",
        "NCCL_DEBUG": "",
        "EPOCHS": "3",
    }
