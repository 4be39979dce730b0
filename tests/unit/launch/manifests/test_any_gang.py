"""Whatever a user writes into a template, and whatever nodes offer: Pods are made, and what is the user's stays so."""

import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from closeknit.api.clustertopology import Fabric, SriovNetwork
from closeknit.api.nodetopology import Transport
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import Framework, Preflight
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.objects.kubelet import KubeletPolicies
from closeknit.launch.cloud_platforms import Platform
from closeknit.launch.cpus import are_open
from closeknit.launch.environment.environment import environment
from closeknit.launch.gang import MULTUS_NETWORKS, Gang
from closeknit.launch.manifests.children import children
from closeknit.launch.manifests.pod_manifest import pods
from closeknit.launch.member import Member
from closeknit.launch.remedy import Remedy
from closeknit.launch.template import check_template, trainer_index

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANY_JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
VARIABLES = [
    *("NCCL_NET", "NCCL_DEBUG", "NCCL_IB_HCA", "NCCL_CROSS_NIC", "NCCL_SOCKET_IFNAME", "NCCL_MNNVL_ENABLE"),
    *("PET_NODE_RANK", "PET_NPROC_PER_NODE", "WORLD_SIZE", "MASTER_PORT", "TF_CONFIG", "OMP_NUM_THREADS"),
    *("UCX_NET_DEVICES", "CLOSEKNIT_PREFLIGHT"),
]
VALUES = [
    "",
    "0",
    "1\r\n",
    "8",
    "9" * 20,
    "\N{ARABIC-INDIC DIGIT THREE}",
    "\N{SUPERSCRIPT TWO}",
    "^eth0",
    "$(X)",
    "INFO",
]
VARIABLE = st.fixed_dictionaries(
    {"name": st.sampled_from(VARIABLES) | st.text(min_size=1, max_size=4)},
    optional={"value": st.sampled_from(VALUES) | st.text(max_size=5), "valueFrom": ANY_JSON},
)
RESOURCES = ["cpu", "memory", "x.io/rail1", "hugepages-2Mi", "vpc.amazonaws.com/efa", "rdma/hca", "pods"]
AMOUNTS: list[Any] = ["1", "0", "-1", "1e99", "500m", "9" * 40, 8, 8.5, None, True, float("inf"), [], {}]
ASKED = st.dictionaries(
    st.sampled_from(["limits", "requests"]),
    st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from(AMOUNTS), max_size=4),
)
WORDS = st.sampled_from(
    ["torchrun", "--nproc-per-node=9", "--nproc_per_node", "16", "--nproc-per-node\r\n8", None, 3, "sh", "-lc",
     "-m", "python", "mpirun -np '2", "deepspeed", "--include", "env", "A=$(", "export NCCL_ALGO=x; torchrun \\\n-",
     "-", "--"]
)  # fmt: skip
COMMAND = st.lists(WORDS, max_size=4) | ANY_JSON
CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from(["trainer", "main"])},
    optional={
        "env": st.lists(VARIABLE, max_size=6),
        "resources": ASKED,
        "command": COMMAND,
        "args": COMMAND,
        "envFrom": ANY_JSON,
        "volumeMounts": st.lists(st.fixed_dictionaries({"mountPath": st.sampled_from(["/dev/shm", "/data"])})),  # noqa: S108 - a mount
        "securityContext": st.fixed_dictionaries({}, optional={"runAsUser": ANY_JSON, "capabilities": st.just({})}),
        "restartPolicy": ANY_JSON,
    },
)
SPEC = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER, min_size=1, max_size=2)},
    optional={
        "initContainers": st.lists(CONTAINER, max_size=2),
        "resources": ASKED,
        "hostNetwork": st.booleans() | ANY_JSON,
        "dnsPolicy": ANY_JSON,
        "ephemeralContainers": ANY_JSON,
        "serviceAccountName": ANY_JSON,
    },
)
NAMES = st.sampled_from(["storage", "default/rail0", "ops/rail1@net9", "", "@", "//", "\r\n", "rail0 "])
NETWORKS = (
    st.text(max_size=40)
    | st.lists(NAMES).map(",".join)
    | st.lists(st.fixed_dictionaries({}, optional={"name": ANY_JSON, "namespace": ANY_JSON})).map(json.dumps)
    | ANY_JSON.map(json.dumps)
)
FUNCTIONS = (
    SriovNetwork(resource="nvidia.com/rail0", network="default/rail0"),
    SriovNetwork(resource="x.io/rail1", network="ops/rail1"),
)
NIC = {"nics": ("mlx5_0:1",)}
OFFERS: list[dict[str, Any]] = [
    {},
    NIC | {"rdma_resource": "rdma/hca"},
    NIC | {"rdma_resource": "k8s.v1.cni.cncf.io/nvidia.com/rail0", "functions": FUNCTIONS},
    NIC | {"rdma_resource": "vpc.amazonaws.com/efa", "transport": Transport.EFA},
    NIC | {"rdma_resource": "networking.gke.io.networks/rdma-0", "networks": ("rdma-0", "rdma-1")},
    NIC | {"rdma_resource": "deviceclass.resource.kubernetes.io/dranet", "nic_addresses": ("0000:01:00.0",)},
]
RULES = st.sampled_from([[], [{"exitCodes": [3], "action": "RestartFree"}, {"exitCodes": [4], "action": "Fail"}]])
FACTS = st.fixed_dictionaries(
    {
        "kubelet": st.builds(KubeletPolicies, *[st.sampled_from([None, "none", "static", "restricted", "Static"])] * 3),
        "platform": st.sampled_from([None, *Platform]),
        "nvlink_domain": st.sampled_from([None, "a"]),
        "has_most_gpus": st.booleans(),
        "usable": st.frozensets(st.sampled_from(Transport)),
    }
)


@st.composite
def gangs(draw: st.DrawFn) -> Gang | None:
    """Of one node or two; None of a template that is refused."""
    nodes = draw(st.integers(1, 2))
    spec = {
        "gpus": 2 * nodes,
        "framework": draw(st.sampled_from(Framework)),
        "preflight": draw(st.sampled_from(Preflight)),
        "restart": {"limit": draw(st.integers(0, 1)), "rules": draw(RULES)},
        "network": {"trafficClass": "gold", "allowHostNetwork": draw(st.booleans())},
        "template": {"metadata": {"annotations": {MULTUS_NETWORKS: draw(NETWORKS)}}, "spec": draw(SPEC)},
    }
    job = TrainingJob.parse_strictly({"metadata": {"name": "train", "uid": "u"}, "spec": spec})
    if check_template(job) is not None:
        return None
    template = job.spec.template.spec
    cpus = draw(st.sampled_from([None, 8])) if are_open(template, trainer_index(template)) else None
    binding, offer = draw(st.sampled_from(Binding)), draw(st.sampled_from(OFFERS))  # one way for all nodes of a gang
    transport = draw(st.sampled_from([None, *Transport]))
    members = [
        Member(
            f"node-{index}",
            index,
            (f"GPU-{index}0", f"GPU-{index}1"),
            2 * index,
            binding,
            **{"transport": transport, "cpus": cpus, **draw(FACTS), **offer},
        )
        for index in range(nodes)
    ]
    fabric = Fabric.parse({"railIsolated": draw(st.booleans()), "trafficClasses": {"gold": {"dscp": 26}}})
    remedies = draw(st.frozensets(st.sampled_from(Remedy)))
    image = draw(st.sampled_from(["", "closeknit/agent:1"]))
    return Gang(job, 1, tuple(members), fabric, remedies=remedies, imex_with=frozenset({binding}), sidecar_image=image)


@given(gangs())
def test_pods_are_made_and_what_is_the_users_stays_so(of: Gang | None) -> None:
    if of is None:
        return
    template = of.job.spec.template
    before = json.dumps(template.spec)
    index = of.trainer_index(of.workers[0].role)
    container = template.spec["containers"][index]
    users = container.get("env") or []
    for made, member in zip(pods(of, range(len(of.members))), of.members, strict=True):
        trainer = made["spec"]["containers"][index]
        assert trainer["env"][len(trainer["env"]) - len(users) :] == users
        ours = [entry["name"] for entry in trainer["env"][: len(trainer["env"]) - len(users)]]
        assert len({*ours}) == len(ours)
        assert {*ours}.isdisjoint(entry["name"] for entry in users)
        assert all(isinstance(value, str) for value in made["metadata"].get("annotations", {}).values())
        for field in ("limits", "requests"):
            asked = (container.get("resources") or {}).get(field) or {}
            given = trainer["resources"].get(field) or {}
            assert {name: given[name] for name in asked if name != member.gpu_resource} == asked
            assert all(int(given[name]) > 0 for name in given.keys() - asked.keys())
        named = [*made["spec"]["containers"], *(made["spec"].get("initContainers") or [])]
        counted = Counter(each["name"] for each in named if each["name"].startswith("closeknit-"))
        assert set(counted.values()) <= {1}
        found = environment(of, member.index)
        assert all(str(hazard) for hazard in found.warnings)
    assert children(of).service["metadata"]["name"] == "train-a1"
    assert json.dumps(template.spec) == before
