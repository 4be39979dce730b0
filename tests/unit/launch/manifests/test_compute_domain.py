"""Who is given IMEX channels, and by what: the way to NVLink between nodes."""

from dataclasses import replace
from typing import Any

import pytest

from closeknit.api.clustertopology import Fabric
from closeknit.api.names import Role
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import Binding
from closeknit.launch.environment.environment import environment
from closeknit.launch.gang import Gang
from closeknit.launch.manifests.children import children
from closeknit.launch.manifests.pod_manifest import pods
from closeknit.launch.member import Member

DOMAIN = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "ComputeDomain",
    "metadata": {
        "name": "train-a1",
        "namespace": "ml",
        "labels": {"closeknit.dev/job": "train", "closeknit.dev/attempt": "1"},
    },
    "spec": {
        "numNodes": 0,
        "channel": {"allocationMode": "Single", "resourceClaimTemplate": {"name": "train-a1-imex"}},
    },
}
CHANNEL = {"name": "closeknit-imex", "resourceClaimTemplateName": "train-a1-imex"}
EVERY = frozenset(Binding)
OWN = {"name": "NCCL_MNNVL_ENABLE", "value": "2"}


def gang(
    *domains: str | None,
    binding: Binding = Binding.DRA,
    imex_with: frozenset[Binding] = EVERY,
    shared: int | None = None,
    **trainer: Any,
) -> Gang:
    """A node of this NVLink domain each; of the one at `shared` others may have as many GPUs."""
    container = {"name": "trainer", "image": "train", **trainer}
    spec = {"gpus": 4 * len(domains), "template": {"spec": {"containers": [container]}}}
    job = TrainingJob.parse_strictly({"metadata": {"name": "train", "namespace": "ml", "uid": "u"}, "spec": spec})
    members = tuple(
        Member(
            f"tray-{index}",
            index,
            ("GPU-0",) * 4,
            4 * index,
            binding,
            nvlink_domain=domain,
            has_most_gpus=index != shared,
        )
        for index, domain in enumerate(domains)
    )
    return Gang(job, 1, members, Fabric(), imex_with=imex_with)


@pytest.mark.parametrize(
    ("of", "gpus"),
    [
        pytest.param(gang("rack-1", "rack-1"), True, id="GPUs by claim"),
        pytest.param(gang("rack-1", "rack-1", binding=Binding.WHOLE_NODE), False, id="GPUs by a device plugin"),
    ],
)
def test_trays_of_one_domain_get_a_compute_domain_and_every_pod_a_channel(of: Gang, gpus: bool) -> None:
    assert children(of).of_service == (DOMAIN,)
    for index, pod in enumerate(pods(of, (0, 1))):
        own = [{"name": "gpus", "resourceClaimName": f"train-a1-worker-0000{index}"}] if gpus else []
        assert pod["spec"]["resourceClaims"] == [*own, CHANNEL]
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["claims"] == [{"name": claim["name"]} for claim in (*own, CHANNEL)]
    assert not mnnvl(of)


@pytest.mark.parametrize(
    ("of", "sets"),
    [
        pytest.param(gang("rack-1", "rack-1", imex_with=frozenset()), ["0"], id="without the driver"),
        pytest.param(gang("rack-1", "rack-1", "rack-2"), ["0"], id="over the border of a domain"),
        pytest.param(gang("rack-1", "rack-1", None), ["0"], id="with a node outside"),
        pytest.param(gang("rack-1", "rack-1", shared=1), ["0"], id="where another gang may have one on the same node"),
        pytest.param(gang("rack-1", "rack-2"), [], id="where no two nodes share NVLink"),
        pytest.param(gang("rack-1"), [], id="on one node"),
        pytest.param(gang("rack-1", "rack-1", env=[OWN]), [], id="where the user has his own word"),
    ],
)
def test_all_others_get_none(of: Gang, sets: list[str]) -> None:
    assert children(of).of_service == ()
    assert [claim["name"] for pod in pods(of, (0,)) for claim in pod["spec"]["resourceClaims"]] == ["gpus"]
    assert mnnvl(of) == sets


def test_a_server_needs_no_channel() -> None:
    of = gang("rack-1", "rack-1", binding=Binding.WHOLE_NODE)
    servers = TrainingJob.parse_strictly(
        {
            "metadata": {"name": "train", "namespace": "ml", "uid": "u"},
            "spec": {
                **of.job.spec.wire(),
                "framework": "Custom",
                "parameterServers": {"replicas": 1, "template": of.job.spec.template.read().wire()},
            },
        }
    )
    members = (*of.members, Member("tray-0", 0, role=Role.PARAMETER_SERVER))
    (server,) = pods(replace(of, job=servers, members=members), (2,))
    assert "resourceClaims" not in server["spec"]


def mnnvl(of: Gang) -> list[str]:
    return [each.value for each in environment(of, 0).variables if each.name == "NCCL_MNNVL_ENABLE"]
