"""The door to NVML: the only module that imports pynvml, and the one that knows the traps of that binding."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import byref, c_uint
from itertools import combinations
from typing import Any, TypeVar

import pynvml

from closeknit.agent.discovery.readings import FabricReading, GpuReading, LinkReading, MigDeviceReading, PairReading
from closeknit.agent.source import SourceError

MAX_LINKS = 36  # Rubin's; NVML_NVLINK_MAX_LINKS differs between releases of the binding
# The binding spells READ's index as a tuple by mistake, in every release since 11.450.
P2P_READ, P2P_NVLINK = 0, 2
# Ids of the speed of links 0 to 11 before Hopper, which has one id for all links.
OLD_LINK_SPEEDS = (84, 85, 86, 87, 88, 89, 132, 133, 134, 135, 136, 137)
LOST = "GpuIsLost"
HOPPER = (9, 0)  # the compute capability from which the state of a link is a field that knows sleep
# nvmlValueType_t -> member of the union
VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

_T = TypeVar("_T")


class Nvml:
    """An open session with the driver."""

    def __init__(self) -> None:
        """Raises SourceError where there is no driver that works."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise SourceError(f"no NVIDIA driver can be used here: {error}{_advice(error)}") from error

    def close(self) -> None:
        """Ends the session; its handles are no longer valid."""
        with suppress(pynvml.NVMLError):  # a driver that is gone has nothing to end
            pynvml.nvmlShutdown()

    def driver_version(self, errors: dict[str, str]) -> str | None:
        """Version of the driver, as 580.159.04 or 535.129.03."""
        return _ask(errors, "driver_version", pynvml.nvmlSystemGetDriverVersion)

    def cuda_version(self, errors: dict[str, str]) -> int | None:
        """Highest CUDA version of the driver: 12040 is 12.4."""
        return _ask(errors, "cuda_version", pynvml.nvmlSystemGetCudaDriverVersion_v2)

    def gpus(self) -> tuple[list[GpuReading], list[PairReading]]:
        """All GPUs by index, and all pairs of those that answer. Raises SourceError if they cannot even be counted."""
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise SourceError(f"the NVIDIA driver does not count its GPUs: {error}{_advice(error)}") from error
        handles = {}
        gpus = []
        for index in range(count):
            errors: dict[str, str] = {}
            handle = _ask(errors, "handle", pynvml.nvmlDeviceGetHandleByIndex, index)
            gpu = GpuReading(index=index, errors=errors) if handle is None else _gpu(index, handle)
            gpus.append(gpu)
            if "handle" not in gpu.errors:
                handles[index] = handle
        return gpus, [_pair(a, b, handles[a], handles[b]) for a, b in combinations(handles, 2)]


def _gpu(index: int, handle: Any) -> GpuReading:
    errors: dict[str, str] = {}

    def ask(field: str, call: Callable[..., _T], *arguments: Any) -> _T | None:
        return _ask(errors, field, call, handle, *arguments)

    pci = ask("bus_id", pynvml.nvmlDeviceGetPciInfo)
    capability = ask("compute_capability", pynvml.nvmlDeviceGetCudaComputeCapability)
    memory = ask("memory_bytes", pynvml.nvmlDeviceGetMemoryInfo)
    mig_mode = ask("mig_mode", pynvml.nvmlDeviceGetMigMode)
    c2c_links = _field(handle, errors, "c2c_links", pynvml.NVML_FI_DEV_C2C_LINK_COUNT)
    c2c_speed = None
    if c2c_links:
        c2c_speed = _field(handle, errors, "c2c_link_mb_s", pynvml.NVML_FI_DEV_C2C_LINK_GET_MAX_BW, 0)
    reading = GpuReading(
        index=index,
        uuid=ask("uuid", pynvml.nvmlDeviceGetUUID),
        name=ask("name", pynvml.nvmlDeviceGetName),
        bus_id=None if pci is None else _ask(errors, "bus_id", lambda: str(pci.busId)),
        minor=ask("minor", pynvml.nvmlDeviceGetMinorNumber),
        architecture=ask("architecture", pynvml.nvmlDeviceGetArchitecture),
        compute_capability=None if capability is None else (capability[0], capability[1]),
        memory_bytes=None if memory is None else int(memory.total),
        module_id=_module_id(handle, errors),
        max_pcie_generation=ask("max_pcie_generation", pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        max_pcie_width=ask("max_pcie_width", pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        virtualization_mode=ask("virtualization_mode", pynvml.nvmlDeviceGetVirtualizationMode),
        mig_mode=None if mig_mode is None else (mig_mode[0], mig_mode[1]),
        mig_devices=_mig_devices(handle, errors) if mig_mode is not None and mig_mode[0] else (),
        c2c_links=c2c_links,
        c2c_link_mb_s=c2c_speed,
        fabric=_fabric(handle, errors),
        links=_links(handle, capability),
        errors=errors,
    )
    if any(LOST in part.values() for part in (errors, *(link.errors for link in reading.links))):
        errors["handle"] = LOST  # it went while it was read: what it said before is all there is
    return reading


def _links(handle: Any, capability: Sequence[int] | None) -> tuple[LinkReading, ...]:
    """The GPU's NVLinks; NVML answers InvalidArgument beyond the last one, and NotSupported where there is none."""
    links = []
    for link in range(MAX_LINKS):
        errors: dict[str, str] = {}
        p2p = _ask(
            errors, "p2p", pynvml.nvmlDeviceGetNvLinkCapability, handle, link, pynvml.NVML_NVLINK_CAP_P2P_SUPPORTED
        )
        if errors.get("p2p") in ("InvalidArgument", "NotSupported"):
            break
        if not p2p:
            links.append(LinkReading(link=link, p2p=None if p2p is None else False, errors=errors))
            if errors.get("p2p") == LOST:
                break
            continue
        pci = _ask(errors, "remote_bus_id", pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        links.append(
            LinkReading(
                link=link,
                p2p=True,
                state=_link_state(handle, link, capability, errors),
                remote_type=_ask(errors, "remote_type", pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link),
                # The name of a hidden switch may be bytes that are no text.
                remote_bus_id=None if pci is None else _ask(errors, "remote_bus_id", lambda pci=pci: str(pci.busId)),
                version=_ask(errors, "version", pynvml.nvmlDeviceGetNvLinkVersion, handle, link),
                speed_mb_s=_link_speed(handle, link, errors),
                errors=errors,
            )
        )
    return tuple(links)


def _link_state(handle: Any, link: int, capability: Sequence[int] | None, errors: dict[str, str]) -> int | None:
    """0 inactive, 1 active, 2 sleep, 3 active with traffic disabled; only the field, from Hopper on, knows 2 and 3."""
    if capability is not None and tuple(capability) >= HOPPER:
        unread: dict[str, str] = {}  # of the first try; the second's error counts
        state = _field(handle, unread, "state", pynvml.NVML_FI_DEV_NVLINK_GET_STATE, link)
        if state is not None:
            return state
    return _ask(errors, "state", pynvml.nvmlDeviceGetNvLinkState, handle, link)


def _link_speed(handle: Any, link: int, errors: dict[str, str]) -> int | None:
    """Speed of a link in MB/s per direction."""
    speed = _field(handle, errors, "speed_mb_s", pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, link)
    if speed is None and link < len(OLD_LINK_SPEEDS):
        unread: dict[str, str] = {}
        speed = _field(handle, unread, "speed_mb_s", OLD_LINK_SPEEDS[link])
        if speed is not None:
            del errors["speed_mb_s"]
    return speed


def _fabric(handle: Any, errors: dict[str, str]) -> FabricReading | None:
    """Fabric registration, by the newest struct that this driver knows."""
    info: Any
    for info in (pynvml.c_nvmlGpuFabricInfo_v3_t(), pynvml.c_nvmlGpuFabricInfo_v2_t()):
        errors.pop("fabric", None)
        _ask(errors, "fabric", pynvml.nvmlDeviceGetGpuFabricInfoV, handle, byref(info))
        if errors.get("fabric") not in ("ArgumentVersionMismatch", "InvalidArgument"):
            break
    if errors.get("fabric") == "FunctionNotFound":
        del errors["fabric"]
        info = pynvml.c_nvmlGpuFabricInfo_t()
        _ask(errors, "fabric", pynvml.nvmlDeviceGetGpuFabricInfo, handle, byref(info))
    if "fabric" in errors:
        return None
    return FabricReading(
        state=info.state & 0xFF,  # one byte in C, four in the binding
        status=info.status,
        cluster_uuid=bytes(info.clusterUuid).hex(),
        clique_id=info.cliqueId,
        health_mask=getattr(info, "healthMask", None),
        health_summary=getattr(info, "healthSummary", None),
    )


def _mig_devices(handle: Any, errors: dict[str, str]) -> tuple[MigDeviceReading, ...]:
    """The MIG devices that exist; holes in their numbering are normal."""
    devices = []
    for number in range(_ask(errors, "mig_devices", pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
            continue
        except pynvml.NVMLError as error:
            errors["mig_devices"] = _word(error)
            break
        unread: dict[str, str] = {}
        attributes = _ask(unread, "memory_mib", pynvml.nvmlDeviceGetAttributes_v2, device)
        devices.append(
            MigDeviceReading(
                uuid=_ask(unread, "uuid", pynvml.nvmlDeviceGetUUID, device),
                name=_ask(unread, "name", pynvml.nvmlDeviceGetName, device),
                memory_mib=None if attributes is None else int(attributes.memorySizeMB),
                errors=unread,
            )
        )
    return tuple(devices)


def _module_id(handle: Any, errors: dict[str, str]) -> int | None:
    # Without an argument of ours the binding would share one among all calls; given one, it returns the code.
    module = c_uint()
    code = _ask(errors, "module_id", pynvml.nvmlDeviceGetModuleId, handle, byref(module))
    if code:
        errors["module_id"] = _word(pynvml.NVMLError(code))
    return module.value if code == 0 else None


def _pair(a: int, b: int, handle_a: Any, handle_b: Any) -> PairReading:
    errors: dict[str, str] = {}
    return PairReading(
        a=a,
        b=b,
        common_ancestor=_ask(errors, "common_ancestor", pynvml.nvmlDeviceGetTopologyCommonAncestor, handle_a, handle_b),
        p2p_nvlink=_ask(errors, "p2p_nvlink", pynvml.nvmlDeviceGetP2PStatus, handle_a, handle_b, P2P_NVLINK),
        p2p_read=_ask(errors, "p2p_read", pynvml.nvmlDeviceGetP2PStatus, handle_a, handle_b, P2P_READ),
        errors=errors,
    )


def _field(handle: Any, errors: dict[str, str], name: str, field: int, scope: int | None = None) -> int | None:
    """One field value; `scope` is the link. Each value carries a return code of its own."""
    wanted = [field] if scope is None else [(field, scope)]
    values = _ask(errors, name, pynvml.nvmlDeviceGetFieldValues, handle, wanted)
    if values is None:
        return None
    value = values[0]
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        errors[name] = _word(pynvml.NVMLError(value.nvmlReturn))
        return None
    return int(getattr(value.value, VALUE_MEMBERS[value.valueType]))


def _ask(errors: dict[str, str], field: str, call: Callable[..., _T], *arguments: Any) -> _T | None:
    """What NVML answers; None and the error's name under `field` if it refuses."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        errors[field] = _word(error)
    except UnicodeDecodeError:
        errors[field] = "NotText"
    return None


def _word(error: Any) -> str:
    """NVML's own name of an error: NotSupported, GpuIsLost."""
    word = type(error).__name__.removeprefix("NVMLError_")
    return word if word != "NVMLError" else f"Error{error.value}"


def _advice(error: Any) -> str:
    match _word(error):
        case "LibraryNotFound":
            return "; libnvidia-ml.so.1 is not installed, or the container runtime did not put it into this container"
        case "DriverNotLoaded":
            return "; load NVIDIA's kernel modules (nvidia-smi shows whether they work)"
        case "LibRmVersionMismatch":
            return "; the driver was upgraded under a running kernel module: drain the node and restart it"
        case _:
            return ""
