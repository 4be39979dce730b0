"""Every Pod template is refused in one short message or makes a Pod on its node, whatever JSON it is."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from closeknit.api.affinity import REQUIRED
from closeknit.api.clustertopology import Fabric
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import Binding
from closeknit.launch.environment.environment import container_environment
from closeknit.launch.gang import Gang
from closeknit.launch.manifests.pod_manifest import pod, pods
from closeknit.launch.member import Member
from closeknit.launch.template import check_template

FIELDS = [
    *("containers", "initContainers", "volumes", "volumeMounts", "resources", "limits", "requests", "claims", "env"),
    *("name", "value", "valueFrom", "mountPath", "cpu", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"),
    *(
        "matchFields",
        "matchExpressions",
        "key",
        "operator",
        "values",
        "tolerations",
        "schedulingGates",
        "resourceClaims",
        "securityContext",
        "capabilities",
        "add",
    ),
    *("restartPolicy", "hostname"),
]
WORDS = ["", "trainer", "Never", "gpus", "In", "metadata.name", "/dev/shm/", "8", "500m", "NCCL_NET", "IPC_LOCK"]  # noqa: S108 - a mount
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=5)


def objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), values, max_size=6)


ANY_JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | objects(inner), max_leaves=20)
# Arbitrary JSON rarely gets past the first check; these come near a real Pod and reach the others.
VARIABLE = st.fixed_dictionaries({"name": st.sampled_from(WORDS[1:])}, optional={"value": ANY_JSON})
MOUNT = st.fixed_dictionaries({"mountPath": st.sampled_from(WORDS)})
CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from(["trainer", "main"])},
    optional={
        "env": st.lists(VARIABLE) | ANY_JSON,
        "resources": objects(objects(ANY_JSON)) | ANY_JSON,
        "volumeMounts": st.lists(MOUNT) | ANY_JSON,
        "securityContext": objects(objects(ANY_JSON)) | ANY_JSON,
    },
)
SPECS = objects(ANY_JSON) | st.builds(
    lambda containers, rest: {**rest, "containers": containers}, st.lists(CONTAINER, max_size=3), objects(ANY_JSON)
)


@given(spec=SPECS, binding=st.sampled_from(Binding), rdma=st.booleans())
def test_any_template_is_refused_or_makes_a_pinned_pod(spec: dict[str, Any], binding: Binding, rdma: bool) -> None:
    asked = TrainingJob.parse_strictly(
        {"metadata": {"name": "train", "uid": "job-uid"}, "spec": {"gpus": 4, "template": {"spec": spec}}}
    )
    before = json.dumps(spec)
    message = check_template(asked)
    if message is not None:
        assert message.startswith("spec.template.")
        assert len(message) < 1000
        return
    net: dict[str, Any] = {"nics": ("mlx5_0:1",), "rdma_resource": "rdma/hca"} if rdma else {}
    nodes = tuple(Member(f"node-{i}", i, (f"GPU-{i}0", f"GPU-{i}1"), 2 * i, binding, **net) for i in (0, 1))
    gang = Gang(asked, 1, nodes, Fabric())
    made = pod(gang, 1)
    terms = made["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    pin = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    assert terms
    for term in terms:
        is_empty = not (term.get("matchExpressions") or term.get("matchFields"))
        assert is_empty or term["matchFields"][-1] == pin
    assert "PET_NODE_RANK" in container_environment(gang, 1)
    assert json.dumps(pods(gang, (1, 0))) == json.dumps([made, pod(gang, 0)])
    assert json.dumps(spec) == before
