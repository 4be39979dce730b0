"""The objects of one attempt, compared whole with fixtures that a person can read, and the corners of their making."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from closeknit.api.affinity import REQUIRED
from closeknit.api.clustertopology import Fabric
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import Binding
from closeknit.launch.gang import Gang
from closeknit.launch.manifests.children import children
from closeknit.launch.manifests.claim import claim
from closeknit.launch.manifests.owner import owned
from closeknit.launch.manifests.pod_manifest import pod, pods
from closeknit.launch.member import Member
from closeknit.launch.template import check_template

FIXTURES = Path(__file__).parents[3] / "fixtures" / "launch"
PIN = {"key": "metadata.name", "operator": "In", "values": ["node-0"]}
POOL = {"key": "pool", "operator": "Exists"}
OTHER = {"key": "metadata.name", "operator": "NotIn", "values": ["node-9"]}


@pytest.mark.parametrize("name", ["pytorch-16gpu-rdma", "pytorch-4gpu-dra"])
def test_the_objects_of_an_attempt_are_those_of_the_fixture(name: str) -> None:
    picture = yaml.safe_load((FIXTURES / f"{name}.yaml").read_text())
    gang = TypeAdapter(Gang).validate_python(picture["gang"])
    assert check_template(gang.job) is None
    own_pods = pods(gang, range(len(gang.members)))
    made = [children(gang).service, *own_pods]
    made += [
        owned(claim(gang, member.index), own_pods[member.index], "c0ffee")
        for member in gang.members
        if member.binding is Binding.DRA
    ]
    assert made == picture["made"]


def gang(
    spec: dict[str, Any] | None = None, binding: Binding = Binding.BEST_EFFORT, ipc_lock: bool = True, **node: Any
) -> Gang:
    """Two nodes with two GPUs each, the job's Pod spec merged with one container."""
    template = {"containers": [{"name": "main", "image": "pytorch"}], **(spec or {})}
    job = TrainingJob.parse_strictly(
        {"metadata": {"name": "train", "uid": "job-uid"}, "spec": {"gpus": 4, "template": {"spec": template}}}
    )
    assert check_template(job) is None
    nodes = (
        Member(**{"uuids": ("GPU-00", "GPU-01"), **node}, node="node-0", index=0, first_rank=0, binding=binding),
        Member(**{"uuids": ("GPU-10", "GPU-11"), **node}, node="node-1", index=1, first_rank=2, binding=binding),
    )
    return Gang(job, 1, nodes, Fabric(), ipc_lock)


RDMA: dict[str, Any] = {"nics": ("mlx5_0:1",), "rdma_resource": "rdma/hca"}


def made(*arguments: Any, **named: Any) -> dict[str, Any]:
    """The Pod spec of node rank 0."""
    spec: dict[str, Any] = pod(gang(*arguments, **named), 0)["spec"]
    return spec


def trainer(container: dict[str, Any] | None = None, **named: Any) -> dict[str, Any]:
    """The trainer of node rank 0, made of the user's container."""
    found: dict[str, Any] = made({"containers": [{"name": "main", **(container or {})}]}, **named)["containers"][0]
    return found


@pytest.mark.parametrize("binding", Binding)
def test_nothing_of_ours_holds_a_pod_back(binding: Binding) -> None:
    assert "schedulingGates" not in made(binding=binding)


@pytest.mark.parametrize("binding", Binding)
def test_gates_of_the_users_stay(binding: Binding) -> None:
    gates = [{"name": "example.com/quota"}]
    assert made({"schedulingGates": gates}, binding=binding)["schedulingGates"] == gates


@pytest.mark.parametrize(
    ("terms", "pinned"),
    [
        pytest.param(None, [{"matchFields": [PIN]}], id="no affinity of the user's"),
        pytest.param(
            [{"matchExpressions": [POOL]}],
            [{"matchExpressions": [POOL], "matchFields": [PIN]}],
            id="one term gets the pin",
        ),
        pytest.param(
            [{"matchExpressions": [POOL]}, {"matchFields": [OTHER]}],
            [{"matchExpressions": [POOL], "matchFields": [PIN]}, {"matchFields": [OTHER, PIN]}],
            id="terms are alternatives: each gets the pin",
        ),
        pytest.param(
            [{}, {"matchFields": None}, {"matchExpressions": []}],
            [{}, {"matchFields": None}, {"matchExpressions": []}],
            id="an empty term matches nothing and stays",
        ),
    ],
)
def test_a_pod_is_pinned_beside_the_users_affinity(terms: object, pinned: object) -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": ["c"]}
    pods = {"podAntiAffinity": {"x": "y"}}
    affinity = {"nodeAffinity": preferred | ({REQUIRED: {"nodeSelectorTerms": terms}} if terms else {}), **pods}
    assert made({"affinity": affinity})["affinity"] == {
        "nodeAffinity": {**preferred, REQUIRED: {"nodeSelectorTerms": pinned}},
        **pods,
    }


@pytest.mark.parametrize("mount", ["/dev/shm", "/dev/shm/"])  # noqa: S108 - a mount point
def test_a_shared_memory_of_the_users_own_is_left_alone(mount: str) -> None:
    own = {"name": "shm", "mountPath": mount}
    container = {"name": "main", "volumeMounts": [own]}
    spec = made({"containers": [container], "volumes": [{"name": "shm", "emptyDir": {}}]})
    assert spec["volumes"] == [{"name": "shm", "emptyDir": {}}]
    assert spec["containers"][0]["volumeMounts"] == [own]


@pytest.mark.parametrize(
    ("security", "expected"),
    [
        pytest.param(None, {"capabilities": {"add": ["IPC_LOCK"]}}, id="added"),
        pytest.param(
            {"runAsUser": 0, "capabilities": {"add": ["NET_RAW"]}},
            {"runAsUser": 0, "capabilities": {"add": ["NET_RAW", "IPC_LOCK"]}},
            id="added to the user's",
        ),
        pytest.param({"capabilities": {"add": ["IPC_LOCK"]}}, {"capabilities": {"add": ["IPC_LOCK"]}}, id="there"),
        pytest.param({"capabilities": {"add": ["ALL"]}}, {"capabilities": {"add": ["ALL"]}}, id="covered by ALL"),
    ],
)
def test_verbs_may_lock_memory(security: object, expected: object) -> None:
    assert trainer({"securityContext": security}, **RDMA)["securityContext"] == expected


def test_no_capability_without_verbs_or_where_the_namespace_refuses_it() -> None:
    assert "securityContext" not in trainer()
    assert "securityContext" not in trainer(**RDMA, ipc_lock=False)


@pytest.mark.parametrize(
    ("resources", "named", "expected"),
    [
        pytest.param(None, {}, {"nvidia.com/gpu": "2"}, id="the share's GPUs"),
        pytest.param({"limits": {"cpu": 4}}, {}, {"cpu": 4, "nvidia.com/gpu": "2"}, id="beside the user's"),
        pytest.param(None, RDMA, {"nvidia.com/gpu": "2", "rdma/hca": "1"}, id="and one share of the NICs"),
        pytest.param(
            {"limits": {"rdma/of_my_own": 2}},
            RDMA,
            {"rdma/of_my_own": 2, "nvidia.com/gpu": "2"},
            id="NICs of another name are the user's own word, too",
        ),
        pytest.param(
            {"limits": {"rdma/hca": 2}},
            RDMA,
            {"rdma/hca": 2, "nvidia.com/gpu": "2"},
            id="the user's own share of the NICs",
        ),
    ],
)
def test_limits_of_the_trainer(resources: object, named: dict[str, Any], expected: object) -> None:
    assert trainer({"resources": resources}, **named)["resources"]["limits"] == expected


def test_a_claim_takes_the_place_of_the_device_plugins_resource() -> None:
    nic = {"name": "nic"}
    containers = [{"name": "main", "resources": {"claims": [nic]}}]
    claims = [{**nic, "resourceClaimName": "n"}]
    spec = made({"containers": containers, "resourceClaims": claims}, binding=Binding.DRA)
    assert spec["containers"][0]["resources"] == {"claims": [nic, {"name": "gpus"}]}
    assert spec["resourceClaims"][1] == {"name": "gpus", "resourceClaimName": "train-a1-worker-00000"}


def test_a_toleration_of_the_users_own_is_not_repeated() -> None:
    own = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert made({"tolerations": [own]})["tolerations"] == [own]


def test_an_unknown_uuid_leaves_the_annotation_out_and_cannot_be_claimed() -> None:
    of = gang(uuids=("GPU-00", ""), binding=Binding.DRA)
    assert "annotations" not in pod(of, 0)["metadata"]
    with pytest.raises(ValueError, match=r"^a GPU of node node-0 has no uuid, so no ResourceClaim can name it$"):
        claim(of, 0)


def test_a_uuid_cannot_break_out_of_the_claims_expression() -> None:
    [request] = claim(gang(uuids=("x'] || true",), binding=Binding.DRA), 0)["spec"]["devices"]["requests"]
    assert request["exactly"]["selectors"][0]["cel"]["expression"].endswith('.uuid in ["x\'] || true"]')


def test_names_of_the_largest_job_fit_a_host_name() -> None:
    of = gang()
    longest = TrainingJob.parse_strictly(of.job.wire() | {"metadata": {"name": "j" * 40}})
    name = pod(Gang(longest, 10**6, of.members, Fabric()), 1)["spec"]["hostname"]
    assert name == f"{'j' * 40}-a1000000-worker-00001"
    assert len(name) <= 63
