"""A fleet of kwok nodes with eight GPUs each, in racks and blocks, written to a control plane at its pace."""

import asyncio
from collections.abc import Iterable, Iterator

from closeknit.agent.discovery.topology import discover
from closeknit.api.names import API_VERSION, GROUP, VERSION
from closeknit.api.nodetopology import Method
from closeknit.controller.writes.write_slots import IN_FLIGHT
from closeknit.kube.api import Api, JsonObject, Resource
from harness.machines import device_class, node_object, readings, resource_slices

PROFILE = "hgx-h200"
GPUS = 8
NODES_PER_RACK, NODES_PER_BLOCK = 16, 128
RACK, BLOCK = "net.example/rack", "net.example/block"
RESOURCES = {
    "Node": Resource("", "v1", "nodes", namespaced=False),
    "NodeTopology": Resource(GROUP, VERSION, "nodetopologies", namespaced=False),
    "ClusterTopology": Resource(GROUP, VERSION, "clustertopologies", namespaced=False),
    "ResourceSlice": Resource("resource.k8s.io", "v1", "resourceslices", namespaced=False),
    "DeviceClass": Resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False),
}


async def write_fleet(api: Api, nodes: int, *, dra: bool) -> None:
    """Creates the nodes with all that their agents, and the device plugin or the DRA driver, would publish."""
    await create_all(api, fabric())
    await create_all(api, [device_class()] if dra else [])
    await create_all(api, (each for number in range(nodes) for each in machine(number, dra=dra)))


def fabric() -> Iterator[JsonObject]:
    levels = [{"name": "block", "nodeLabel": BLOCK}, {"name": "rack", "nodeLabel": RACK}]
    yield {
        "apiVersion": API_VERSION,
        "kind": "ClusterTopology",
        "metadata": {"name": "default"},
        "spec": {"levels": levels},
    }


def machine(number: int, *, dra: bool) -> Iterator[JsonObject]:
    name = f"gpu-{number:04d}"
    labels = {BLOCK: f"b{number // NODES_PER_BLOCK:02d}", RACK: f"r{number // NODES_PER_RACK:03d}"}
    yield node_object(name, PROFILE, plugin=not dra, labels=labels)
    spec = discover(readings(name, PROFILE), Method.SIMULATED).spec
    yield {"apiVersion": API_VERSION, "kind": "NodeTopology", "metadata": {"name": name}, "spec": spec.wire()}
    if dra:
        yield from resource_slices(name, PROFILE)


async def create_all(api: Api, objects: Iterable[JsonObject]) -> None:
    waiting = iter(objects)

    async def create_some() -> None:
        for each in waiting:
            await api.create(RESOURCES[each["kind"]], each)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(create_some())
