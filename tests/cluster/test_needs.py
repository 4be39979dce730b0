"""What a Pod needs besides GPUs, on a real control plane: jobs go where the stock kube-scheduler finds room, too."""

import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from closeknit.cluster.cluster import build
from closeknit.cluster.objects.pod_requests import needs
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.placement.candidates.resource_fit import fits
from harness.machines import NODE_SIZE, node_object
from harness.operator_bed import ON_PLUGIN, PLUGIN_NODES, Bed
from scenarios.manifests import node_topology

FIRST, SECOND = PLUGIN_NODES
H200 = ON_PLUGIN["gpu"]
CASES = 48
TOLD_AFTER_S = 2.0  # its watches rest up to a tenth of a second, and two tests share the machine
PRODUCT = "example.com/fpga"
RUNTIME = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "heavy"},
    "handler": "heavy",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}},
}


def template(**requests: str) -> dict[str, Any]:
    resources = {"requests": requests}
    return {"spec": {"containers": [{"name": "trainer", "image": "registry.example/train:1", "resources": resources}]}}


def run_stranger(bed: Bed, node: str, **requests: str) -> None:
    """
    Somebody's Pod without GPUs runs on a node, and the operator has been told: a job may reach it before a Pod that was
    created a moment earlier, and nothing that can be seen tells when the Pod has.
    """
    container = {"name": "main", "image": "registry.example/web:1", "resources": {"requests": requests}}
    metadata = {"name": "stranger", "namespace": bed.namespace}
    spec = {"nodeName": node, "containers": [container]}
    bed.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def is_running() -> bool:
        phase = bed.cluster.get("pod", "stranger", bed.namespace).get("status", {}).get("phase")
        return bool(phase == "Running")

    bed.cluster.wait_for(is_running, "the stranger to run")
    time.sleep(TOLD_AFTER_S)


def workers_on(bed: Bed) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in bed.all("pods") if pod["metadata"]["name"] != "stranger")


def test_a_job_goes_where_its_pods_have_room(bed: Bed) -> None:
    """Of two equal nodes the first by name is taken, unless a Pod without any GPU has its CPUs."""
    run_stranger(bed, FIRST, cpu="100")
    bed.submit(gpus=8, gpu=H200, template=template(cpu="64"))
    bed.wait_for_state("Running")
    assert workers_on(bed) == [SECOND]


def test_a_job_without_room_waits_until_there_is(bed: Bed) -> None:
    run_stranger(bed, SECOND, cpu="100")
    bed.submit(**ON_PLUGIN, template=template(cpu="64", memory="1Ti"))
    message = bed.wait_for_reason("InsufficientResources")["message"]
    assert message.startswith(
        "needs 16 GPUs on nodes with 64 cpu and 1024Gi memory left; of 2 nodes with free GPUs 1 has too little cpu "
        "(28 at most); 1 has room, with 8 free GPUs; lower the template's requests, or wait for the Pods that hold the "
        "rest; "
    )
    assert bed.names("services") == []
    bed.delete("pod", "stranger")
    bed.wait_for_state("Running")
    assert workers_on(bed) == [FIRST, SECOND]


def test_a_booked_job_that_has_no_pods_yet_holds_its_cpus(bed: Bed) -> None:
    """Two jobs in one breath: what the first is to have, the second does not get, whatever the scheduler has seen."""
    bed.submit("first", gpus=4, gpu=H200, template=template(cpu="100"))
    bed.submit("second", gpus=4, gpu=H200, template=template(cpu="100"))
    bed.wait_for_state("Running", "first")
    bed.wait_for_state("Running", "second")
    assert workers_on(bed) == [FIRST, SECOND]


def test_what_no_node_could_ever_give_is_said(bed: Bed) -> None:
    bed.submit(gpus=8, gpu=H200, template=template(cpu="129"))
    message = bed.wait_for_reason("InsufficientResources")["message"]
    assert "no node has more than 128 cpu at all: lower the template's requests" in message


def test_a_resource_that_a_device_class_stands_for_is_left_to_the_scheduler(bed: Bed) -> None:
    """No Node counts it: the scheduler claims a device where the driver offers some, which is on the second alone."""
    driver, resource = "fpga.example.com", "example.com/fpga-by-claim"
    cel = {"cel": {"expression": f"device.driver == '{driver}'"}}
    pool = {"name": SECOND, "generation": 1, "resourceSliceCount": 1}
    bed.cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "fpga"},
            "spec": {"driver": driver, "nodeName": SECOND, "pool": pool, "devices": [{"name": "fpga-0"}]},
        }
    )
    job = template()
    job["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}}
    job["spec"]["nodeSelector"] = {"kubernetes.io/hostname": SECOND}
    bed.submit(gpus=8, gpu=H200, template=job)
    bed.wait_for_reason("InsufficientResources")
    bed.cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "fpga"},
            "spec": {"selectors": [cel], "extendedResourceName": resource},
        }
    )
    bed.wait_for_state("Running")
    assert workers_on(bed) == [SECOND]
    bed.cluster.kubectl("delete", "deviceclass/fpga", "resourceslice/fpga")


@pytest.fixture
def nodes(bed: Bed) -> Iterator[list[str]]:
    """Nodes of many sizes that have nothing else in common with the story's."""
    random = Random(5)  # noqa: S311 - the same nodes every time
    names = [f"size-{number:02d}" for number in range(CASES)]
    objects = []
    for name in names:
        node = node_object(name, "hgx-h200", plugin=False)
        size = {
            "cpu": f"{random.randrange(1000, 6000, 250)}m",
            "memory": f"{random.randrange(1, 6)}Gi",
            "ephemeral-storage": f"{random.randrange(1, 6)}Gi",
            "hugepages-2Mi": f"{random.randrange(0, 6) * 2}Mi",
            "pods": str(random.choice([1, 2, 2, 3, 110])),
            PRODUCT: str(random.randrange(0, 4)),
        }
        node["status"] |= {"capacity": {**NODE_SIZE, **size}, "allocatable": size}
        objects.append(node)
    bed.cluster.apply(RUNTIME, *objects)
    yield names
    bed.cluster.kubectl("delete", "nodes", *names)
    bed.cluster.kubectl("delete", "runtimeclass", "heavy")


def some(random: Random) -> dict[str, str]:
    wanted = {
        "cpu": f"{random.randrange(0, 2000, 250)}m",
        "memory": f"{random.randrange(0, 3)}Gi",
        "ephemeral-storage": f"{random.randrange(0, 2)}Gi",
    }
    return {name: amount for name, amount in wanted.items() if random.random() < 0.6}


def container(random: Random, name: str, **more: Any) -> dict[str, Any]:
    requests, limits = some(random), {}
    if random.random() < 0.3:
        requests, limits = {}, requests  # the API server makes requests of them
    if random.random() < 0.3:
        limits[PRODUCT] = str(random.randrange(1, 3))
    if random.random() < 0.2 and "memory" in {**requests, **limits}:
        limits["hugepages-2Mi"] = "4Mi"
    return {
        "name": name,
        "image": "registry.example/x:1",
        "resources": {"requests": requests, "limits": limits},
        **more,
    }


def spec(random: Random) -> dict[str, Any]:
    """A Pod's spec with anything that counts."""
    init = [
        container(random, f"init-{number}", **({"restartPolicy": "Always"} if random.random() < 0.5 else {}))
        for number in range(random.choice([0, 0, 1, 3]))
    ]
    main = [container(random, f"main-{number}") for number in range(random.choice([1, 1, 2]))]
    found: dict[str, Any] = {"containers": main, "initContainers": init, "terminationGracePeriodSeconds": 0}
    if random.random() < 0.3:
        found |= {"runtimeClassName": "heavy", "overhead": RUNTIME["overhead"]["podFixed"]}  # type: ignore[index]
    return found


def pinned(found: dict[str, Any], node: str) -> dict[str, Any]:
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
    return {**found, "affinity": {"nodeAffinity": required}}


def test_a_pod_fits_exactly_where_the_scheduler_puts_it(bed: Bed, nodes: list[str]) -> None:
    random = Random(8)  # noqa: S311 - the same Pods every time

    def named(name: str, found: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": name, "namespace": bed.namespace}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": found}

    held = [node for node in nodes if random.random() < 0.7]
    bed.cluster.apply(*(named(f"holds-{node}", {**spec(random), "nodeName": node}) for node in held))
    documents = [*bed.cluster.get("nodes")["items"], *bed.all("pods"), *(node_topology(node) for node in nodes)]
    seen = build(value for document in documents if (value := from_document(document)) is not None)
    asked = {node: spec(random) for node in nodes}
    expected = {node: fits(seen.nodes[node].spare, needs(asked[node])) for node in nodes}
    assert 10 < sum(expected.values()) < CASES - 10  # there is something to agree on
    bed.cluster.apply(*(named(f"asks-{node}", pinned(asked[node], node)) for node in nodes))

    def verdicts() -> dict[str, bool] | None:
        found = {}
        for pod in bed.all("pods"):
            for condition in pod["status"].get("conditions", []):
                if condition["type"] == "PodScheduled" and pod["metadata"]["name"].startswith("asks-"):
                    found[pod["metadata"]["name"].removeprefix("asks-")] = condition["status"] == "True"
        return found if len(found) == CASES else None

    assert bed.cluster.wait_for(verdicts, "the scheduler to have looked at every Pod") == expected
