"""What one GPU is: the facts that change only with hardware, driver or a reset."""

from collections.abc import Callable
from ctypes import byref, c_uint
from typing import Any, TypeVar

import pynvml

from closeknit.agent.discovery.readings.readings import FabricReading, GpuReading, MigDeviceReading, PairReading
from closeknit.agent.nvml.checked_calls import ask, field, word
from closeknit.agent.nvml.links import links
from closeknit.agent.nvml.nvml_messages import LOST, NOT_KNOWN

# The binding spells READ's index as a tuple by mistake, in every release since 11.450.
P2P_READ, P2P_NVLINK = 0, 2
MAX_MIG_DEVICES = 64  # of one GPU; today's have 7

_T = TypeVar("_T")


def gpu(index: int, handle: Any) -> GpuReading:
    """All that NVML says of a GPU. One that is lost meanwhile has an error under `handle`."""
    errors: dict[str, str] = {}

    def asked(fact: str, call: Callable[..., _T]) -> _T | None:
        return ask(errors, fact, call, handle)

    pci = asked("bus_id", pynvml.nvmlDeviceGetPciInfo)
    capability = asked("compute_capability", pynvml.nvmlDeviceGetCudaComputeCapability)
    memory = asked("memory_bytes", pynvml.nvmlDeviceGetMemoryInfo)
    mig_mode = asked("mig_mode", pynvml.nvmlDeviceGetMigMode)
    c2c_links = field(handle, errors, "c2c_links", pynvml.NVML_FI_DEV_C2C_LINK_COUNT)
    c2c_speed = None
    if c2c_links:
        c2c_speed = field(handle, errors, "c2c_link_mb_s", pynvml.NVML_FI_DEV_C2C_LINK_GET_MAX_BW, 0)
    reading = GpuReading(
        index=index,
        uuid=asked("uuid", pynvml.nvmlDeviceGetUUID),
        name=asked("name", pynvml.nvmlDeviceGetName),
        bus_id=None if pci is None else ask(errors, "bus_id", lambda: str(pci.busId)),
        minor=asked("minor", pynvml.nvmlDeviceGetMinorNumber),
        architecture=_architecture(handle, errors),
        compute_capability=None if capability is None else (capability[0], capability[1]),
        memory_bytes=None if memory is None else int(memory.total),
        module_id=_module_id(handle, errors),
        max_pcie_generation=asked("max_pcie_generation", pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        max_pcie_width=asked("max_pcie_width", pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        virtualization_mode=asked("virtualization_mode", pynvml.nvmlDeviceGetVirtualizationMode),
        mig_mode=None if mig_mode is None else (mig_mode[0], mig_mode[1]),
        mig_devices=_mig_devices(handle, errors) if mig_mode is not None and mig_mode[0] else (),
        c2c_links=c2c_links,
        c2c_link_mb_s=c2c_speed,
        fabric=fabric(handle, errors),
        links=links(handle, capability),
        errors=errors,
    )
    if any(LOST in part.values() for part in (errors, *(link.errors for link in reading.links))):
        errors["handle"] = LOST  # it went while it was read: what it said before is all there is
    return reading


def pair(a: int, b: int, handle_a: Any, handle_b: Any) -> PairReading:
    """Two GPUs, a < b."""
    errors: dict[str, str] = {}
    return PairReading(
        a=a,
        b=b,
        common_ancestor=ask(errors, "common_ancestor", pynvml.nvmlDeviceGetTopologyCommonAncestor, handle_a, handle_b),
        p2p_nvlink=ask(errors, "p2p_nvlink", pynvml.nvmlDeviceGetP2PStatus, handle_a, handle_b, P2P_NVLINK),
        p2p_read=ask(errors, "p2p_read", pynvml.nvmlDeviceGetP2PStatus, handle_a, handle_b, P2P_READ),
        errors=errors,
    )


def fabric(handle: Any, errors: dict[str, str]) -> FabricReading | None:
    """Fabric registration, by the newest struct that this driver knows."""
    info: Any
    for info in (pynvml.c_nvmlGpuFabricInfo_v3_t(), pynvml.c_nvmlGpuFabricInfo_v2_t()):
        errors.pop("fabric", None)
        ask(errors, "fabric", pynvml.nvmlDeviceGetGpuFabricInfoV, handle, byref(info))
        if errors.get("fabric") not in ("ArgumentVersionMismatch", "InvalidArgument"):
            break
    if errors.get("fabric") == "FunctionNotFound":
        del errors["fabric"]
        info = pynvml.c_nvmlGpuFabricInfo_t()
        ask(errors, "fabric", pynvml.nvmlDeviceGetGpuFabricInfo, handle, byref(info))
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
    count = ask(errors, "mig_devices", pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    for number in range(min(count, MAX_MIG_DEVICES)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
            continue
        except pynvml.NVMLError as error:
            errors["mig_devices"] = word(error)
            break
        unread: dict[str, str] = {}
        attributes = ask(unread, "memory_mib", pynvml.nvmlDeviceGetAttributes_v2, device)
        devices.append(
            MigDeviceReading(
                uuid=ask(unread, "uuid", pynvml.nvmlDeviceGetUUID, device),
                name=ask(unread, "name", pynvml.nvmlDeviceGetName, device),
                memory_mib=None if attributes is None else int(attributes.memorySizeMB),
                errors=unread,
            )
        )
    return tuple(devices)


def _architecture(handle: Any, errors: dict[str, str]) -> int | None:
    architecture = ask(errors, "architecture", pynvml.nvmlDeviceGetArchitecture, handle)
    if architecture == pynvml.NVML_DEVICE_ARCH_UNKNOWN:  # it says so, where another call would fail
        errors["architecture"] = NOT_KNOWN
        return None
    return architecture


def _module_id(handle: Any, errors: dict[str, str]) -> int | None:
    # Without an argument of ours the binding would share one among all calls; given one, it returns the code.
    module = c_uint()
    code = ask(errors, "module_id", pynvml.nvmlDeviceGetModuleId, handle, byref(module))
    if code:
        errors["module_id"] = word(pynvml.NVMLError(code))
    return module.value if code == 0 else None
