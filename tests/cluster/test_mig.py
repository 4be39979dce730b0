"""MIG devices on a real control plane: the stock scheduler gives what is booked, by both bindings, and no device twice.

One node's device plugin has the strategy mixed, the other's GPUs are bound by claims; on each one of eight GPUs is cut.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from closeknit.agent.discovery.simulated.profile import Faults
from harness.install import free_port, install, start_agents, start_operator
from harness.kubectl import KubectlError
from harness.local_cluster import LocalCluster
from harness.machines import device_class, mig_class, node_object, readings, resource_slices
from harness.operator_bed import ON_PLUGIN_PROFILE, Bed

BY_PLUGIN, BY_DRA = "mig-1", "mig-2"
PROFILE = "1g.18gb"  # of an H200 the smallest
RESOURCE = f"nvidia.com/mig-{PROFILE}"
CUT = Faults(mig_gpus=(0,))
serials = itertools.count()


def uuids(node: str) -> list[str]:
    """Of the MIG devices of a node, as its agent publishes them."""
    return [str(device.uuid) for device in readings(node, ON_PLUGIN_PROFILE, CUT).gpus[0].mig_devices]


def offered() -> dict[str, Any]:
    """The node of the plugin, which counts GPUs and MIG devices."""
    node = node_object(BY_PLUGIN, ON_PLUGIN_PROFILE, plugin=True)
    counts = {**node["status"]["allocatable"], "nvidia.com/gpu": "7", RESOURCE: "7"}
    node["status"] |= {"capacity": counts, "allocatable": counts}
    return node


def named() -> dict[str, Any]:
    """The slice of the other, with the first GPU as its MIG devices."""
    (part,) = resource_slices(BY_DRA, ON_PLUGIN_PROFILE)
    first, *whole = part["spec"]["devices"]
    attributes = first["attributes"]
    parts = [
        {
            **first,
            "name": f"gpu-0-mig-{PROFILE.replace('.', '')}-19-{number}",
            "attributes": {
                **attributes,
                "type": {"string": "mig"},
                "uuid": {"string": uuid},
                "parentUUID": attributes["uuid"],
                "profile": {"string": PROFILE},
            },
        }
        for number, uuid in enumerate(uuids(BY_DRA))
    ]
    part["spec"]["devices"] = [*whole, *parts]
    return part


@pytest.fixture(scope="module")
def running() -> Iterator[Bed]:
    with LocalCluster() as cluster:
        install(cluster)
        claimed = node_object(BY_DRA, ON_PLUGIN_PROFILE, plugin=False)
        cluster.apply(offered(), claimed, device_class(), mig_class(), named())
        faults = {"migGPUs": list(CUT.mig_gpus)}
        nodes = (BY_PLUGIN, BY_DRA)
        start_agents(cluster, [{"name": name, "profile": ON_PLUGIN_PROFILE, "faults": faults} for name in nodes])
        bed = Bed(cluster, free_port())
        cluster.wait_for(lambda: len(cluster.get("nodetopologies")["items"]) == len(nodes), "the agents")
        bed.pid = start_operator(cluster, bed.port)
        yield bed


@pytest.fixture
def cut(running: Bed) -> Iterator[Bed]:
    running.begin(f"mig-{next(serials)}")
    yield running
    running.cluster.delete("trainingjobs", namespace=running.namespace)
    running.cluster.kubectl("delete", "pods", "--all", f"--namespace={running.namespace}", "--force")
    running.cluster.wait_for(lambda: not running.names("resourceclaims"), "the story's claims to be collected")
    running.cluster.delete("namespace", running.namespace)


def gpu(binding: str) -> dict[str, str]:
    return {"mig": PROFILE, "binding": binding}


def device(bed: Bed, name: str) -> str:
    (node,) = bed.job(name)["status"]["placement"]["nodes"]
    assert node["gpus"] == [0]
    return str(node["migDevice"])


def wait_until_verified(bed: Bed, name: str) -> str:
    def message() -> str | None:
        conditions = bed.job(name)["status"].get("conditions", [])
        return next(
            (each["message"] for each in conditions if (each["type"], each["status"]) == ("PlacementVerified", "True")),
            None,
        )

    return bed.cluster.wait_for(message, f"{name} to be verified")


def test_the_plugins_choice_is_told(cut: Bed) -> None:
    cut.submit("chosen", gpus=1, gpu=gpu("BestEffort"))
    cut.wait_for_state("Running", "chosen")
    (pod,) = cut.all("pods")
    assert pod["spec"]["nodeName"] == BY_PLUGIN
    assert pod["spec"]["containers"][0]["resources"]["limits"][RESOURCE] == "1"
    given = next(uuid for uuid in uuids(BY_PLUGIN) if uuid != device(cut, "chosen"))
    statuses = pod["status"]["containerStatuses"]
    health = {"name": RESOURCE, "resources": [{"resourceID": given, "health": "Healthy"}]}
    statuses[0]["allocatedResourcesStatus"] = [health]
    cut.cluster.patch(
        "pod", pod["metadata"]["name"], {"status": {"containerStatuses": statuses}}, cut.namespace, "status"
    )
    assert wait_until_verified(cut, "chosen") == f"its Pod has MIG device {given} ({PROFILE}), of the planned profile"
    assert device(cut, "chosen") == given


def test_claims_have_the_very_devices_and_none_twice(cut: Bed) -> None:
    names = [f"claimed-{number}" for number in range(8)]
    for name in names:
        cut.submit(name, gpus=1, gpu=gpu("DRA"))
    pending = cut.wait_for_reason("InsufficientGPUs", names[-1])
    assert "0 of 14 are free" in pending["message"]
    for name in names[:-1]:
        cut.wait_for_state("Running", name)
        assert device(cut, name) in wait_until_verified(cut, name)
    booked = [device(cut, name) for name in names[:-1]]
    assert sorted(booked) == sorted(uuids(BY_DRA))
    of_device = {each["name"]: each["attributes"]["uuid"]["string"] for each in named()["spec"]["devices"]}
    for name, uuid in zip(names, booked, strict=False):
        claim = cut.cluster.get("resourceclaim", f"{name}-a1-worker-00000", cut.namespace)
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert of_device[result["device"]] == uuid
    cut.finish(f"{names[0]}-a1-worker-00000", "succeed")
    cut.wait_for_state("Running", names[-1])
    assert device(cut, names[-1]) == booked[0]


def test_a_whole_gpu_beside_them_is_placed_as_ever(cut: Bed) -> None:
    cut.submit("whole", gpus=7, gpu={"binding": "DRA"})
    cut.wait_for_state("Running", "whole")
    (node,) = cut.job("whole")["status"]["placement"]["nodes"]
    assert (node["name"], sorted(node["gpus"]), node.get("migDevice")) == (BY_DRA, [1, 2, 3, 4, 5, 6, 7], None)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"gpus": 2, "gpu": {"mig": PROFILE}}, "gpu.mig needs gpus: 1"),
        ({"gpus": 1, "gpu": {"mig": "nvidia.com/mig-1g.18gb"}}, "spec.gpu.mig"),
        ({"gpus": 1, "gpu": {"mig": "1g.18gb\n"}}, "spec.gpu.mig"),
    ],
)
def test_bad_input_is_refused_by_the_api_server(cut: Bed, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(KubectlError, match=words):
        cut.submit("bad", **spec)


def test_a_profile_that_nobody_offers_is_told_with_those_that_there_are(cut: Bed) -> None:
    cut.submit("large", gpus=1, gpu={"mig": "7g.141gb"})
    pending = cut.wait_for_reason("NoMatchingGPU", "large")
    assert pending["message"] == (
        f"needs a MIG device 7g.141gb; this cluster has 14 {PROFILE} (NVIDIA-H200); "
        "ask for one of these, or leave gpu.mig out for a whole GPU"
    )
