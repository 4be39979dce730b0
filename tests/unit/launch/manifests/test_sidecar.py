"""What a gang that restarts in place has in its Pods; and that nothing else has any of it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from closeknit.api.clustertopology import Fabric
from closeknit.api.names import BARRIER_CONTAINER, SIDECAR_CONTAINER, Role
from closeknit.api.nodetopology import Transport
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.booking.gang_sidecar import may_have_sidecar, worker_needs
from closeknit.cluster.objects.pod_requests import needs
from closeknit.cluster.pods.gang_runs import tellers
from closeknit.launch.gang import Gang
from closeknit.launch.manifests.pod_manifest import pods
from closeknit.launch.manifests.sidecar_container import PORT
from closeknit.launch.member import Member
from closeknit.sidecar.gang.settings import Settings

IMAGE = "closeknit/agent:1"
INIT = {"name": "init", "image": "init"}


def gang(restart: dict[str, Any] | None = None, *, image: str = IMAGE, **trainer: Any) -> Gang:
    container = {"name": "trainer", "image": "train", "command": ["torchrun", "train.py"], **trainer}
    spec: dict[str, Any] = {"gpus": 4, "template": {"spec": {"containers": [container], "initContainers": [INIT]}}}
    if restart is not None:
        spec["restart"] = restart
    job = TrainingJob.parse_strictly({"metadata": {"name": "train", "namespace": "ml", "uid": "u"}, "spec": spec})
    members = tuple(
        Member(f"node-{index}", index, (f"GPU-{index}0", f"GPU-{index}1"), 2 * index, Binding.WHOLE_NODE)
        for index in range(2)
    )
    return Gang(job, 1, (*members, Member("node-0", 0, role=Role.PARAMETER_SERVER)), Fabric(), sidecar_image=image)


def of(gang: Gang, index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = pods(gang, (index,))[0]["spec"]
    return found


def told(spec: dict[str, Any]) -> Settings:
    barrier, sidecar = spec["initContainers"][0], spec["containers"][-1]
    assert barrier["env"] == sidecar["env"]
    return Settings.parse(sidecar["env"][0]["value"])


def test_without_its_image_a_pod_has_nothing_of_it() -> None:
    spec = of(gang({"limit": 3}, image=""))
    assert [each["name"] for each in spec["initContainers"]] == ["init"]
    assert spec == of(gang(None, image=""))


def test_the_barrier_comes_before_whatever_may_meet_another_rank_and_the_sidecar_beside_the_trainer() -> None:
    spec = of(gang({"limit": 3}))
    assert [each["name"] for each in spec["initContainers"]] == [BARRIER_CONTAINER, "init"]
    trainer, sidecar = spec["containers"]
    assert (trainer["name"], sidecar["name"]) == ("trainer", SIDECAR_CONTAINER)
    assert (sidecar["restartPolicy"], sidecar["restartPolicyRules"]) == (
        "OnFailure",
        [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [77]}}],
    )
    assert trainer["restartPolicy"] == "Never"
    assert trainer["command"][-2:] == ["torchrun", "train.py"]
    assert "$(" not in json.dumps(trainer["command"]), "Kubernetes would expand it"


def test_every_pod_knows_its_place_and_the_meeting_point() -> None:
    found = [told(of(gang({"limit": 3}), index)) for index in range(3)]
    assert [(each.index, each.size, each.host, each.port) for each in found] == [
        (index, 3, "train-a1-worker-00000.train-a1.ml.svc", PORT) for index in range(3)
    ]
    assert len({each.key for each in found}) == 1
    assert found[0].key != told(of(replace(gang({"limit": 3}), attempt=2))).key


def test_workers_all_over_the_gang_tell_whether_it_is_whole() -> None:
    members = tuple(Member(f"node-{index}", index, (f"GPU-{index}",), 1, Binding.WHOLE_NODE) for index in range(10))
    server = Member("node-0", 0, role=Role.PARAMETER_SERVER)
    specs = [of(replace(gang({"limit": 3}), members=(*members, server)), index) for index in range(11)]
    probed = [spec["containers"][-1].get("readinessProbe", {}).get("httpGet", {}).get("port") for spec in specs]
    assert probed == [PORT if index in tellers(10) else None for index in range(11)]
    assert [told(spec).probe_port for spec in specs] == [None, *probed[1:]]


@pytest.mark.parametrize(
    ("restart", "operator", "values", "final"),
    [
        ({"limit": 1}, "NotIn", [0], [0]),
        ({"limit": 1, "rules": [{"exitCodes": [3, 4], "action": "Fail"}]}, "NotIn", [0, 3, 4], [0, 3, 4]),
        ({"rules": [{"exitCodes": [4], "action": "RestartFree"}]}, "In", [4], [0, 1, 2, 3]),
    ],
)
def test_codes_that_end_the_job_start_nothing_again(
    restart: dict[str, Any], operator: str, values: list[int], final: list[int]
) -> None:
    spec = of(gang(restart))
    (rule,) = spec["containers"][0]["restartPolicyRules"]
    assert rule == {"action": "RestartAllContainers", "exitCodes": {"operator": operator, "values": values}}
    assert [code for code in range(5) if told(spec).is_final(code)] == final


def test_what_placement_counts_is_what_the_pod_asks_for() -> None:
    """Also of one whose own init container asks for more than all that runs later."""
    for resources in ({}, {"requests": {"cpu": "3", "memory": "1Gi"}}, {"limits": {"cpu": "100m"}}):
        made = gang({"limit": 3}, resources=resources)
        assert worker_needs(made.job.spec) == needs(of(made))
        plain = gang(None, image="", resources=resources)
        assert worker_needs(plain.job.spec) == needs(of(plain))


def test_a_guaranteed_pod_stays_one() -> None:
    """Else the kubelet's CPU manager would give its trainer no CPUs of its own."""
    spec = of(gang({"limit": 3}))
    for each in (spec["initContainers"][0], spec["containers"][-1]):
        assert each["resources"]["requests"] == each["resources"]["limits"]
        assert {"cpu", "memory"} == each["resources"]["limits"].keys()


@pytest.mark.parametrize(
    ("restart", "trainer", "expected"),
    [
        ({"limit": 1}, {}, True),
        (None, {}, False),
        ({"limit": 0}, {}, False),
        ({"rules": [{"exitCodes": [4], "action": "Fail"}]}, {}, False),
        ({"rules": [{"exitCodes": [4], "action": "RestartFree"}]}, {}, True),
        ({"limit": 1}, {"restartPolicy": "Never"}, True),
        ({"limit": 1}, {"restartPolicy": "OnFailure"}, False),
        ({"limit": 1}, {"restartPolicyRules": [{}]}, False),
        ({"limit": 1}, {"command": []}, False),
        ({"limit": 1}, {"command": None}, False),
    ],
)
def test_who_restarts_in_place(restart: dict[str, Any] | None, trainer: dict[str, Any], expected: bool) -> None:
    assert may_have_sidecar(gang(restart, **trainer).job.spec) is expected


@pytest.mark.parametrize("is_allowed", [False, True])
def test_on_its_nodes_network_a_gang_does_not_listen_to_ras_which_may_be_of_another_job(is_allowed: bool) -> None:
    within = gang({"limit": 3})
    workers = tuple(
        replace(member, nics=("mlx5_0:1",), rdma_resource="rdma/hca", transport=Transport.ROCE)
        for member in within.members[:2]
    )
    network = within.job.spec.network.model_copy(update={"allow_host_network": is_allowed})
    spec = within.job.spec.model_copy(update={"network": network})
    of_roce = replace(within, job=within.job.model_copy(update={"spec": spec}), members=workers)
    found = of(of_roce)
    assert (found.get("hostNetwork") is True) is is_allowed
    assert told(found).hears_ras is not is_allowed
