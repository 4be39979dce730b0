"""The uuids of the GPUs that a node offers by DRA: of its ResourceSlices, since the kubelet knows devices by name."""

import msgspec

from closeknit.agent.discovery.usage.allocations import DraDevice
from closeknit.api.names import GPU_DRA_DRIVER
from closeknit.kube.api import Api, Resource

RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
_MAX_PAGES = 8  # of 500 slices; a node of 16 GPUs has one, and one more for each kind of device beside


class _Value(msgspec.Struct):
    string: str | None = None


class _Device(msgspec.Struct):
    name: str
    attributes: dict[str, _Value] = {}


class _Pool(msgspec.Struct):
    name: str
    generation: int


class _Spec(msgspec.Struct):
    driver: str
    pool: _Pool
    devices: list[_Device] = []


class _Slice(msgspec.Struct):
    spec: _Spec


_decoder = msgspec.json.Decoder(_Slice)


async def gpu_uuids(api: Api, node: str) -> dict[DraDevice, str]:
    """Device -> uuid, of the newest generation of each pool. Raises ApiError."""
    newest: dict[str, int] = {}
    found: dict[DraDevice, tuple[int, str]] = {}
    token: str | None = None
    for _ in range(_MAX_PAGES):
        page = await api.list(RESOURCE_SLICES, field_selector=f"spec.nodeName={node}", continue_token=token)
        for raw in page.items:
            try:
                spec = _decoder.decode(raw).spec
            except msgspec.DecodeError:  # of a driver with ways of its own: its devices stay unknown
                continue
            if spec.driver == GPU_DRA_DRIVER:
                generation = spec.pool.generation
                newest[spec.pool.name] = max(generation, newest.get(spec.pool.name, generation))
                for each in spec.devices:
                    uuid = each.attributes.get("uuid", _Value()).string
                    if uuid:
                        device = DraDevice(spec.driver, spec.pool.name, each.name)
                        found[device] = max((generation, uuid), found.get(device, (generation, uuid)))
        token = page.continue_token
        if not token:
            break
    return {device: uuid for device, (generation, uuid) in found.items() if generation == newest[device.pool]}
