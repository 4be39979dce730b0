"""The decision table row by row: each case bears the line of the source that it shows (NCCL's guide and code, vendors'
own settings), and what of it is left alone."""

from dataclasses import replace
from typing import Any

import pytest

from closeknit.api.clustertopology import Fabric
from closeknit.api.nodetopology import Transport
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.objects.nic_exposure import NicExposure
from closeknit.launch.cloud_platforms import Platform
from closeknit.launch.environment import nccl
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.remedy import Remedy
from closeknit.launch.template import SHM_PATH
from closeknit.launch.variable import Variable

IB: dict[str, Any] = {"nics": ("mlx5_0:1", "mlx5_3:1"), "rdma_resource": "rdma/hca", "transport": Transport.INFINIBAND}
ROCE = {**IB, "transport": Transport.ROCE}
ERDMA = {**ROCE, "nics": ("erdma_0:1",), "rdma_resource": "aliyun/erdma"}
EFA = {"nics": ("rdmap16s27:1",), "rdma_resource": "vpc.amazonaws.com/efa", "transport": Transport.EFA}
GIB = {
    **ROCE,
    "rdma_resource": "networking.gke.io.networks/rdma-0",
    "networks": ("rdma-0", "rdma-1"),
    "platform": Platform.GCP_GIB,
}
QOS = {"training": {"dscp": 26, "serviceLevel": 3}}
VERBS = {"NCCL_NET": "IB", "NCCL_IB_HCA": "=mlx5_0:1,mlx5_3:1"}


def gang(*, nodes: int = 2, fabric: dict[str, Any] | None = None, annotations: Any = None, network: Any = None,
         remedies: frozenset[Remedy] = frozenset(), cpus: str | None = None, env: Any = (),
         imex_with: frozenset[Binding] = frozenset(), **facts: Any) -> Gang:  # fmt: skip
    resources = {} if cpus is None else {"resources": {"limits": {"cpu": cpus}}}
    job = TrainingJob.parse_strictly(
        {
            "metadata": {"name": "train", "namespace": "ml", "uid": "u"},
            "spec": {
                "gpus": nodes * 2,
                "network": network or {},
                "template": {
                    "metadata": {"annotations": annotations or {}},
                    "spec": {"containers": [{"name": "trainer", "env": list(env), **resources}]},
                },
            },
        }
    )
    members = tuple(
        Member(f"node-{index}", index, (f"GPU-{index}0", f"GPU-{index}1"), index * 2, Binding.WHOLE_NODE, **facts)
        for index in range(nodes)
    )
    return Gang(job, 1, members, Fabric.parse(fabric or {}), remedies=remedies, imex_with=imex_with)


def values(of: Gang, index: int = 0) -> dict[str, str]:
    return {variable.name: variable.value for variable in nccl.variables(of, of.members[index])}


CASES: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    # source line: (facts, everything that is set but NCCL_DEBUG, something that is left alone)
    "ENV:544 DEBUG: WARN by default": ({"nodes": 1}, {}, "NCCL_ALGO"),
    "ENV:544 user asks for debug: INIT,ENV,GRAPH,NET, and dumps": (
        {"nodes": 1, "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]},
        {
            "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,NET",
            "NCCL_TOPO_DUMP_FILE": f"{SHM_PATH}/nccl-topology.xml",
            "NCCL_GRAPH_DUMP_FILE": f"{SHM_PATH}/nccl-graph.xml",
        },
        "NCCL_DEBUG_FILE",
    ),
    "ENV:544 and for errors alone": ({"nodes": 1, "env": [{"name": "NCCL_DEBUG", "value": "ERROR"}]}, {}, "NCCL_ALGO"),
    "job fits one node, one pod: nothing network-related": ({"nodes": 1, **IB}, {}, "NCCL_NET"),
    "ENV:26 pod has exactly one non-lo iface": (IB, VERBS, "NCCL_SOCKET_IFNAME"),
    "ENV:26 pod has 2 ifaces or more (Multus): exact name on every rank": (
        {"annotations": {"k8s.v1.cni.cncf.io/networks": "rail0"}, **IB},
        {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0", **VERBS},
        "NCCL_SOCKET_FAMILY",
    ),
    "ENV:174 IB link layer ACTIVE, devices in pod": (IB, VERBS, "NCCL_IB_GID_INDEX"),
    "ENV:277 RoCE ACTIVE: as IB, GID_INDEX left": (ROCE, VERBS, "NCCL_IB_GID_INDEX"),
    "ENV:342 RoCE + dscp declared: IB_TC = dscp<<2": (
        {"fabric": {"trafficClasses": QOS}, "network": {"trafficClass": "training"}, **ROCE},
        {**VERBS, "NCCL_IB_TC": "104"},
        "NCCL_IB_SL",
    ),
    "ENV:329 IB QoS site value: SL": (
        {"fabric": {"trafficClasses": QOS}, "network": {"trafficClass": "training"}, **IB},
        {**VERBS, "NCCL_IB_SL": "3"},
        "NCCL_IB_TC",
    ),
    "ENV:342 a class that the site does not declare marks nothing": (
        {"network": {"trafficClass": "training"}, **ROCE},
        VERBS,
        "NCCL_IB_TC",
    ),
    "ENV:1011 RoCE + ecmp: the site's queue pairs": (
        {"fabric": {"ecmp": True, "qpsPerConnection": 4}, **ROCE},
        {**VERBS, "NCCL_IB_QPS_PER_CONNECTION": "4"},
        "NCCL_IB_SPLIT_DATA_ON_QPS",
    ),
    "ENV:1011 RoCE + ecmp without a number: nothing": ({"fabric": {"ecmp": True}, **ROCE}, VERBS, "NCCL_IB_TIMEOUT"),
    "ENV:147 railIsolated: CROSS_NIC=0, PXN must stay on": (
        {"fabric": {"railIsolated": True}, **IB},
        {**VERBS, "NCCL_CROSS_NIC": "0"},
        "NCCL_PXN_DISABLE",
    ),
    "ENV:147 rails joined by spine": (IB, VERBS, "NCCL_CROSS_NIC"),
    "ENV:441 no verbs device / iWARP only: Socket": ({}, {"NCCL_NET": "Socket"}, "NCCL_IB_DISABLE"),
    "ENV:121 plain TCP of 100 Gbit/s and more: 4 threads x 4 sockets": (
        {"fabric": {"levelBandwidthGBps": {"host": 25, "rack": 12.5}}},
        {"NCCL_NET": "Socket", "NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"},
        "NCCL_IB_DISABLE",
    ),
    "ENV:121 with 2 CPUs a rank to spare": (
        {"fabric": {"levelBandwidthGBps": {"host": 25}}, "cpus": "6"},
        {"NCCL_NET": "Socket", "NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"},
        "NCCL_IB_DISABLE",
    ),
    "ENV:121 without: one socket": (
        {"fabric": {"levelBandwidthGBps": {"host": 25}}, "cpus": "5"},
        {"NCCL_NET": "Socket"},
        "NCCL_IB_DISABLE",
    ),
    "ENV:121 a network that is narrow somewhere: one socket": (
        {"fabric": {"levelBandwidthGBps": {"host": 25, "rack": 5}}},
        {"NCCL_NET": "Socket"},
        "NCCL_IB_DISABLE",
    ),
    "ENV:121 RDMA has no sockets to multiply": (
        {"fabric": {"levelBandwidthGBps": {"host": 25}}, **IB},
        VERBS,
        "NCCL_IB_GID_INDEX",
    ),
    "ENV:441 NICs that no resource exposes: the first net that initialises": (
        {"usable": frozenset({Transport.ROCE})},
        {},
        "NCCL_NET",
    ),
    "AO efa-env-var.md EFA: plugin pinned, ifaces excluded, all NCCL_IB_* no-ops": (
        EFA,
        {"NCCL_NET": "AWS Libfabric", "NCCL_SOCKET_IFNAME": "^lo,docker,pod-id-link,veth"},
        "FI_PROVIDER",
    ),
    "Alibaba eRDMA: NCCL's own verbs over RoCE": (
        ERDMA,
        {"NCCL_NET": "IB", "NCCL_IB_HCA": "=erdma_0:1"},
        "NCCL_IB_GID_INDEX",
    ),
    "GCP gIB set_nccl_env.sh: everything else suppressed": (GIB, {}, "NCCL_CROSS_NIC"),
    "GCP TCPXO nccl-env-profile.sh: everything else suppressed": ({"platform": Platform.GCP_TCPXO}, {}, "NCCL_NET"),
    "GCP TCPX nccl-config.yaml, on isolated rails, too": (
        {"platform": Platform.GCP_TCPX, "fabric": {"railIsolated": True}},
        {},
        "NCCL_IB_HCA",
    ),
    "ENV:1753 hostNetwork=true: RAS_ADDR on a port of the job's own": (
        {"network": {"allowHostNetwork": True}, **ROCE},
        {**VERBS, "NCCL_RAS_ADDR": "localhost:23246"},
        "NCCL_SOCKET_IFNAME",
    ),
    "hostNetwork is for RoCE alone": ({"network": {"allowHostNetwork": True}, **IB}, VERBS, "NCCL_IB_GID_INDEX"),
    "Azure ND nccl.conf: relaxed ordering, affinity": (
        {"platform": Platform.AZURE_ND, **IB},
        {**VERBS, "NCCL_IB_PCI_RELAXED_ORDERING": "1", "NCCL_IGNORE_CPU_AFFINITY": "1"},
        "NCCL_TOPO_FILE",
    ),
    "SRC mnnvl.cc:62-89 clique present, no IMEX channel: MNNVL_ENABLE=0": (
        {"nvlink_domain": "c0ffee.1", **IB},
        {**VERBS, "NCCL_MNNVL_ENABLE": "0"},
        "NCCL_CUMEM_ENABLE",
    ),
    "gpu.clique label, ComputeDomain: MNNVL_ENABLE (auto), UUID, CLIQUE_ID": (
        {"nvlink_domain": "c0ffee.1", "has_most_gpus": True, "imex_with": frozenset(Binding), **IB},
        VERBS,
        "NCCL_MNNVL_ENABLE",
    ),
    "#1672 previous attempt failed with NVLS/multicast message": (
        {"nodes": 1, "remedies": frozenset({Remedy.WITHOUT_NVLS})},
        {"NCCL_NVLS_ENABLE": "0"},
        "NCCL_ALGO",
    ),
    "error 12 calls for other nodes and for no setting": (
        {"nodes": 1, "remedies": frozenset({Remedy.ELSEWHERE})},
        {},
        "NCCL_NVLS_ENABLE",
    ),
}


@pytest.mark.parametrize(("facts", "expected", "left"), CASES.values(), ids=CASES.keys())
def test_a_row_sets_what_its_source_says_and_leaves_the_rest(
    facts: dict[str, Any], expected: dict[str, str], left: str
) -> None:
    of = gang(**facts)
    assert values(of) == {"NCCL_DEBUG": "WARN", **expected}
    assert left in nccl.left_alone(of)


# "Never emit in production", word by word; what is said of old versions and of preflight is no exception.
NEVER = """
    NCCL_ALGO NCCL_PROTO NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_P2P_LEVEL NCCL_P2P_DISABLE NCCL_SHM_DISABLE
    NCCL_NET_GDR_LEVEL NCCL_IB_GID_INDEX NCCL_GRAPH_FILE NCCL_NVB_DISABLE NCCL_PXN_DISABLE NCCL_COLLNET_ENABLE
    NCCL_IB_TIMEOUT CUDA_VISIBLE_DEVICES
"""


@pytest.mark.parametrize("facts", [facts for facts, *_ in CASES.values()], ids=CASES.keys())
def test_what_is_never_to_be_set_never_is_and_nothing_is_set_twice(facts: dict[str, Any]) -> None:
    of = gang(**facts)
    names = [variable.name for variable in nccl.variables(of, of.members[0])]
    assert not set(NEVER.split()) & set(names)
    assert len(names) == len(set(names))
    assert not set(names) & set(nccl.left_alone(of))


def test_every_row_holds_in_some_case_and_every_variable_says_why() -> None:
    held: set[str] = set()
    found: list[Variable] = []
    for facts, *_ in CASES.values():
        of = gang(**facts)
        held |= {row.fact for row in nccl.rows(of)}
        found += nccl.variables(of, of.members[0])
    assert held == {row.fact for row in nccl.TABLE}
    assert all(variable.why for variable in found)


def test_members_without_gpus_get_nothing() -> None:
    of = gang(**IB)
    assert nccl.variables(of, replace(of.members[0], uuids=())) == ()


def test_nodes_that_expose_their_nics_in_different_ways_talk_over_sockets() -> None:
    of = gang(usable=frozenset({Transport.ROCE}), offered=NicExposure.SHARED)
    mixed = replace(of, members=(of.members[0], replace(of.members[1], offered=NicExposure.GKE)))
    assert [values(mixed, index)["NCCL_NET"] for index in (0, 1)] == ["Socket", "Socket"]
    assert "NCCL_NET" not in values(of)
