"""NICs of DRANET on the real control plane: the stock scheduler allocates the planned ones, beside the GPUs, and the
operator's token claims nothing else.

DRANET is played by this test: its DeviceClass, and its slices of the NICs that the agents found.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from closeknit.api.names import GPU_DRA_DRIVER, NIC_DRA_DRIVER
from harness.chart import NAMESPACE, wait_for_policies
from harness.install import OPERATOR
from harness.kubectl import KubectlError
from harness.machines import device_class, nic_class, nic_device
from harness.operator_bed import DRA_NODES, ON_DRA, ON_PLUGIN, PLUGIN_NODES, Bed

EXTENDED_RESOURCES_SINCE = (1, 36)  # by DRA (DRAExtendedResource): before, a DeviceClass loses the name of its resource
Object = dict[str, Any]
NODES = (*PLUGIN_NODES, *DRA_NODES)


def nic_slice(bed: Bed, node: str) -> Object:
    """DRANET's slice of a node, with an interface that is no RDMA NIC and has no PCI address."""
    found = bed.cluster.get("nodetopology", node)["spec"]["nics"]
    lone = {"name": "net-eth0", "attributes": {"dra.net/ifName": {"string": "eth0"}, "dra.net/rdma": {"bool": False}}}
    devices = [
        {
            "name": nic_device(nic["pciAddress"]),
            "attributes": {
                "dra.net/pciAddress": {"string": nic["pciAddress"]},
                "dra.net/rdma": {"bool": True},
                "dra.net/rdmaDevice": {"string": nic["name"]},
            },
        }
        for nic in found
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{NIC_DRA_DRIVER}"},
        "spec": {
            "driver": NIC_DRA_DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [lone, *devices],
        },
    }


@pytest.fixture(scope="module")
def dranet(running: Bed) -> Iterator[Bed]:
    """Every node has DRANET."""
    running.cluster.apply(nic_class(), *(nic_slice(running, node) for node in NODES))
    yield running
    for node in NODES:
        running.cluster.delete("resourceslice", f"{node}-{NIC_DRA_DRIVER}")
    running.cluster.delete("deviceclass", nic_class()["metadata"]["name"])


def given(bed: Bed, driver: str) -> dict[str, list[tuple[str, str]]]:
    """(pool, device) that the scheduler gave to each claim."""
    claims = {each["metadata"]["name"]: each["status"]["allocation"]["devices"]["results"]
              for each in bed.all("resourceclaims")}  # fmt: skip
    return {
        name: sorted((each["pool"], each["device"]) for each in results if each["driver"] == driver)
        for name, results in claims.items()
    }


def planned(bed: Bed, name: str = "train") -> dict[str, list[tuple[str, str]]]:
    """The same by the booking."""
    found: dict[str, list[tuple[str, str]]] = {}
    nics: list[str] = []
    for rank, share in enumerate(bed.job(name)["status"]["placement"]["nodes"]):
        nics = share.get("nics", nics)
        spec = bed.cluster.get("nodetopology", share["name"])["spec"]["nics"]
        addresses = {each["name"]: each["pciAddress"] for each in spec}
        found[f"{name}-a1-worker-{rank:05d}"] = sorted((share["name"], nic_device(addresses[nic])) for nic in nics)
    return found


def test_the_scheduler_allocates_the_planned_nics_beside_the_gpus(dranet: Bed, bed: Bed) -> None:  # noqa: ARG001
    """Of each of two jobs on halves of the same nodes; each has those beside its GPUs."""
    for name in ("train", "other"):
        bed.submit(name, **ON_DRA | {"gpus": 8, "topology": {"gpusPerNode": 4}})
        bed.wait_for_state("Running", name)
    wanted = planned(bed) | planned(bed, "other")
    assert given(bed, NIC_DRA_DRIVER) == wanted
    assert {name: len(gpus) for name, gpus in given(bed, GPU_DRA_DRIVER).items()} == dict.fromkeys(wanted, 4)
    every = [nic for nics in wanted.values() for nic in nics]
    assert len(every) == len(set(every)) == 8
    hcas = [env["value"] for pod in bed.all("pods") for env in pod["spec"]["containers"][0]["env"]
            if env["name"] == "NCCL_IB_HCA"]  # fmt: skip
    assert [words.count(":1") for words in hcas] == [2, 2, 2, 2]


def test_gpus_of_a_device_plugin_go_with_a_claim_of_nics(dranet: Bed, bed: Bed) -> None:
    """Unless a DeviceClass stands for the plugin's GPUs, too, which no older Kubernetes keeps: then the NICs come as
    shares of a resource."""
    if dranet.cluster.kubernetes >= EXTENDED_RESOURCES_SINCE:
        bed.submit(**ON_PLUGIN)
        bed.wait_for_state("Running")
        assert bed.all("resourceclaims") == []
        bed.delete("trainingjob", "train")
        bed.wait_for_nothing()
    plain = device_class()
    del plain["spec"]["extendedResourceName"]
    dranet.cluster.delete("deviceclass", GPU_DRA_DRIVER)
    dranet.cluster.apply(plain)
    try:
        bed.submit(**ON_PLUGIN)
        bed.wait_for_state("Running")
        assert given(bed, NIC_DRA_DRIVER) == planned(bed)
        assert [len(nics) for nics in given(bed, NIC_DRA_DRIVER).values()] == [8, 8]
        assert all("rdma/hca" not in pod["spec"]["containers"][0]["resources"]["requests"] for pod in bed.all("pods"))
    finally:
        dranet.cluster.delete("deviceclass", GPU_DRA_DRIVER)
        dranet.cluster.apply(device_class())


NAME = "gone-a1-worker-00007"
ADDRESS = "device.attributes['dra.net'].pciAddress"
PINNED = f"device.driver == 'dra.net' && has({ADDRESS}) && {ADDRESS} in ['0000:1a:00.0', '0000:3a:00.0']"
ONLY = "by their PCI addresses, without admin access and without a config"
CLAIM: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {
        "name": NAME,
        "labels": {
            "closeknit.dev/job": "gone",
            "closeknit.dev/attempt": "1",
            "closeknit.dev/role": "worker",
            "closeknit.dev/index": "7",
        },
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": NAME, "uid": "b3e7a5c0", "controller": True}],
    },
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "nics",
                    "exactly": {
                        "deviceClassName": "dranet",
                        "count": 2,
                        "selectors": [{"cel": {"expression": PINNED}}],
                    },
                }
            ]
        }
    },
}


def saying(expression: str) -> Callable[[Object], object]:
    return lambda exactly: exactly.update(selectors=[{"cel": {"expression": expression}}])


ATTEMPTS: dict[str, tuple[Callable[[Object], object], str]] = {
    "as launch makes it": (lambda _: None, ""),
    "of a class of the site": (lambda exactly: exactly.update(deviceClassName="mrdma.google.com"), ""),
    "GPUs": (lambda exactly: exactly.update(deviceClassName="gpu.nvidia.com"), ""),
    "every device of a class": (lambda exactly: exactly.pop("selectors"), ONLY),
    "another driver": (saying(PINNED.replace("dra.net", "vfio.example")), ONLY),
    "another driver, too": (saying(f"{PINNED} || device.driver == 'vfio.example'"), ONLY),
    "another driver first": (saying(f"true || {PINNED}"), ONLY),
    "every NIC": (saying("device.driver == 'dra.net'"), ONLY),
    "a list that ends early": (saying(PINNED.replace("['0000", "[''] || true || '' in ['0000")), ONLY),
}


def test_nothing_else_is_claimed(dranet: Bed) -> None:
    wait_for_policies(dranet.cluster, "gpu-1")
    token = dranet.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)
    said = {}
    for what, (change, _) in ATTEMPTS.items():
        body = deepcopy(CLAIM)
        change(body["spec"]["devices"]["requests"][0]["exactly"])
        said[what] = refusal(dranet, token, body)
    assert {what: words for what, words in said.items() if not words.endswith(ATTEMPTS[what][1])} == {}
    assert not said["as launch makes it"] and not said["of a class of the site"] and not said["GPUs"]


def refusal(bed: Bed, token: Path, body: Object) -> str:
    arguments = ("create", "--filename=-", "--namespace=default", "--dry-run=server")
    try:
        bed.cluster.kubectl(*arguments, stdin=json.dumps(body), kubeconfig=token)
    except KubectlError as error:
        return error.stderr.strip().rpartition("denied request: ")[2]
    return ""
