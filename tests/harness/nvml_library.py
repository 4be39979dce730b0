"""A stand-in for libnvidia-ml.so.1 below NVIDIA's own Python binding: it answers the C calls from known readings.

The binding itself is real: its structs, its error classes and its mistakes. A call that a test leaves out is one that
an old driver does not have.
"""

import ctypes
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import msgspec
import pynvml

from closeknit.agent.discovery.readings.readings import GpuReading, LinkReading, MigDeviceReading, PairReading, Readings
from harness import nvml_fields as fields
from harness.nvml_handles import address, set_address

if TYPE_CHECKING:
    import pytest  # a worker of the tests has no use for it, and starts in half the time

SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, GPU_IS_LOST, VERSION_MISMATCH = 0, 2, 3, 15, 25
CODES = {
    "InvalidArgument": INVALID_ARGUMENT,
    "NotSupported": NOT_SUPPORTED,
    "NoPermission": 4,
    "GpuIsLost": GPU_IS_LOST,
    "Unknown": 999,
}
FIRST_MIG_HANDLE = 1000


class NvmlLibrary:
    """The library of one machine. `fabric_version`: the newest struct of fabric information that it knows; 1 has a call
    of its own. `lost_after`: so many calls on a GPU until it is lost, by index.
    """

    def __init__(
        self,
        readings: Readings,
        *,
        missing: Collection[str] = (),
        fabric_version: int = 3,
        old_speeds: bool = False,
        lost_after: dict[int, int] | None = None,
    ) -> None:
        self._readings = readings
        self._missing = missing
        self._fabric_version = fabric_version
        self._old_speeds = old_speeds
        self._calls_left = dict(lost_after or {})
        self.sessions = 0
        self.live = {  # of every GPU
            "utilization_percent": 97,
            "memory_used_bytes": 5 << 30,
            "temperature_celsius": 54,
            "power_milliwatts": 412_500,
        }
        self.value_type = fields.UINT  # of all fields
        self.calls = 0  # so far
        self.events: list[tuple[int, int]] = []  # (index of the GPU, XID) that the driver has yet to tell
        self.event_error = 10  # what it answers when there is none: TIMEOUT
        self.watched: list[int] = []  # indexes of the GPUs whose events are told
        self.sent_kib: dict[int, int] = {}  # over all links of a GPU, by its index
        self.unread_link: int | None = None  # the link of every GPU whose errors are not told
        self.failing: tuple[int, int] | None = None  # the number of one call, from 0, and the code that it answers

    def install(self, monkeypatch: "pytest.MonkeyPatch") -> None:
        """Puts this library below pynvml for one test."""
        monkeypatch.setattr(pynvml, "nvmlLib", self)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name in self._missing:
            raise AttributeError(name)
        call = self._function(name)

        def counted(*arguments: Any) -> int:
            self.calls += 1
            if self.failing is not None and self.failing[0] == self.calls - 1:
                return self.failing[1]
            return call(*arguments)

        return counted

    def _function(self, name: str) -> Callable[..., int]:
        if name in fields.NUMBERS:
            return lambda handle, number: self._put(handle, fields.NUMBERS[name], number)
        if name in fields.LINK_NUMBERS:
            return lambda handle, link, number: self._put_of_link(handle, link, fields.LINK_NUMBERS[name], number)
        found: Callable[..., int] = object.__getattribute__(self, f"_{name}")
        return found

    def _gpu(self, handle: Any) -> GpuReading | int:
        """The GPU of a handle, or the code of being lost."""
        index = address(handle) - 1
        if index in self._calls_left:
            self._calls_left[index] -= 1
            if self._calls_left[index] < 0:
                return GPU_IS_LOST
        return self._readings.gpus[index]

    def _value(self, handle: Any, field: str) -> tuple[int, Any]:
        """Return code, and what the GPU's reading has under `field`."""
        gpu = self._gpu(handle)
        if isinstance(gpu, int):
            return gpu, None
        return _answer(gpu, field)

    def _put(self, handle: Any, field: str, target: Any) -> int:
        code, value = self._value(handle, field)
        if code == SUCCESS:
            target._obj.value = value
        return code

    def _put_of_link(self, handle: Any, link: int, field: str, target: Any) -> int:
        code, found = self._link(handle, link)
        if found is None:
            return code
        code, value = _answer(found, field)
        if code == SUCCESS:
            target._obj.value = value
        return code

    def _link(self, handle: Any, link: int) -> tuple[int, LinkReading | None]:
        code, links = self._value(handle, "links")
        if code != SUCCESS:
            return code, None
        if link >= len(links):
            return (INVALID_ARGUMENT if links else NOT_SUPPORTED), None
        return SUCCESS, links[link]

    def _nvmlInitWithFlags(self, _flags: int) -> int:  # noqa: N802 -- C's names, here and below
        self.sessions += 1
        return SUCCESS

    def _nvmlShutdown(self) -> int:  # noqa: N802
        self.sessions -= 1
        return SUCCESS

    def _nvmlSystemGetDriverVersion(self, text: Any, _length: Any) -> int:  # noqa: N802
        text.value = (self._readings.driver_version or "").encode()
        return SUCCESS

    def _nvmlSystemGetCudaDriverVersion(self, number: Any) -> int:  # noqa: N802
        number._obj.value = self._readings.cuda_version
        return SUCCESS

    def _nvmlDeviceGetCount_v2(self, number: Any) -> int:  # noqa: N802
        number._obj.value = len(self._readings.gpus)
        return SUCCESS

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802
        if index.value >= len(self._readings.gpus):
            return INVALID_ARGUMENT
        gpu = self._readings.gpus[index.value]
        set_address(handle._obj, index.value + 1)
        return CODES[gpu.errors["handle"]] if "handle" in gpu.errors else SUCCESS

    def _nvmlDeviceGetUUID(self, handle: Any, text: Any, _length: Any) -> int:  # noqa: N802
        return self._text(handle, "uuid", text)

    def _nvmlDeviceGetName(self, handle: Any, text: Any, _length: Any) -> int:  # noqa: N802
        return self._text(handle, "name", text)

    def _text(self, handle: Any, field: str, text: Any) -> int:
        if address(handle) >= FIRST_MIG_HANDLE:
            code, value = _answer(self._mig_device(handle), field)
        else:
            code, value = self._value(handle, field)
        if code == SUCCESS:
            text.value = value.encode()
        return code

    def _nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:  # noqa: N802
        code, value = self._value(handle, "bus_id")
        if code == SUCCESS:
            info._obj.busId = value.encode()
        return code

    def _nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:  # noqa: N802
        code, value = self._value(handle, "compute_capability")
        if code == SUCCESS:
            major._obj.value, minor._obj.value = value
        return code

    def _nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:  # noqa: N802
        code, value = self._value(handle, "memory_bytes")
        if code == SUCCESS:
            memory._obj.total, memory._obj.used = value, self.live["memory_used_bytes"]
        return code

    def _nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:  # noqa: N802
        code, gpu = self._value(handle, "mig_mode")
        if code == SUCCESS and gpu[0]:
            return NOT_SUPPORTED
        rates._obj.gpu, rates._obj.memory = self.live["utilization_percent"], 1
        return SUCCESS if code == NOT_SUPPORTED else code

    def _nvmlDeviceGetTemperature(self, handle: Any, sensor: Any, number: Any) -> int:  # noqa: N802
        assert sensor.value == 0
        number._obj.value = self.live["temperature_celsius"]
        return self._value(handle, "index")[0]

    def _nvmlDeviceGetPowerUsage(self, handle: Any, number: Any) -> int:  # noqa: N802
        number._obj.value = self.live["power_milliwatts"]
        return self._value(handle, "index")[0]

    def _nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:  # noqa: N802
        code, value = self._value(handle, "mig_mode")
        if code == SUCCESS:
            current._obj.value, pending._obj.value = value
        return code

    def _nvmlDeviceGetMaxMigDeviceCount(self, _handle: Any, number: Any) -> int:  # noqa: N802
        number._obj.value = 7
        return SUCCESS

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, device: Any) -> int:  # noqa: N802
        _, devices = self._value(handle, "mig_devices")
        place = index.value - 1  # the first place is a hole, as is normal
        if not 0 <= place < len(devices):
            return 6 if index.value % 2 else INVALID_ARGUMENT  # NOT_FOUND or this: real drivers answer both
        set_address(device._obj, FIRST_MIG_HANDLE * address(handle) + place)
        return SUCCESS

    def _mig_device(self, handle: Any) -> MigDeviceReading:
        gpu, place = divmod(address(handle), FIRST_MIG_HANDLE)
        return self._readings.gpus[gpu - 1].mig_devices[place]

    def _nvmlDeviceGetAttributes_v2(self, handle: Any, attributes: Any) -> int:  # noqa: N802
        code, value = _answer(self._mig_device(handle), "memory_mib")
        if code == SUCCESS:
            attributes._obj.memorySizeMB = value
        return code

    def _nvmlDeviceGetFieldValues(self, handle: Any, count: Any, values: Any) -> int:  # noqa: N802
        for value in values._obj[: count.value]:
            value.nvmlReturn, found = self._field(handle, value.fieldId, value.scopeId)
            if value.nvmlReturn == SUCCESS:
                value.valueType = self.value_type
                if self.value_type < len(fields.VALUE_MEMBERS):
                    setattr(value.value, fields.VALUE_MEMBERS[self.value_type], found)
        return SUCCESS

    def _field(self, handle: Any, field: int, scope: int) -> tuple[int, Any]:
        if field == fields.SENT_FIELD:
            gpu = self._gpu(handle)
            return (gpu, None) if isinstance(gpu, int) else self._sent(gpu.index, scope)
        if field in fields.HEALTH_FIELDS:
            return self._health(handle, fields.HEALTH_FIELDS[field])
        if field in fields.LINK_ERROR_FIELDS:  # all of them are those of link 0
            if scope == self.unread_link:
                return CODES["Unknown"], None
            code, count = self._health(handle, "link_errors")
            return code, count if scope == 0 else 0
        if field in (fields.C2C_COUNT_FIELD, fields.C2C_SPEED_FIELD):
            return self._value(handle, "c2c_links" if field == fields.C2C_COUNT_FIELD else "c2c_link_mb_s")
        is_old = field in fields.OLD_SPEED_FIELDS
        if is_old:
            scope = fields.OLD_SPEED_FIELDS.index(field)
        if is_old is not self._old_speeds and field != fields.STATE_FIELD:
            return NOT_SUPPORTED, None
        code, link = self._link(handle, scope)
        return (code, None) if link is None else _answer(link, "state" if field == fields.STATE_FIELD else "speed_mb_s")

    def _sent(self, index: int, scope: int) -> tuple[int, Any]:
        if scope != fields.ALL_LINKS or index not in self.sent_kib:
            return NOT_SUPPORTED, None
        return SUCCESS, self.sent_kib[index]

    def _health(self, handle: Any, field: str) -> tuple[int, Any]:
        code, health = self._value(handle, "health")
        return (code, None) if health is None else _answer(health, field)

    def _nvmlDeviceGetRemappedRows(self, handle: Any, *numbers: Any) -> int:  # noqa: N802
        code, failed = self._health(handle, "rows_failed")
        _, pending = self._health(handle, "rows_pending")
        if code == SUCCESS:
            for number, value in zip(numbers, (7, 7, pending, failed), strict=True):
                number._obj.value = value
        return code

    def _nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: Any, counter: Any, number: Any) -> int:  # noqa: N802
        assert (kind.value, counter.value) == (1, 0)  # uncorrected, since the driver was loaded
        return self._put_health(handle, "uncorrected_ecc", number)

    def _nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any, number: Any) -> int:  # noqa: N802
        return self._put_health(handle, "clocks_event_reasons", number)

    _nvmlDeviceGetCurrentClocksThrottleReasons = _nvmlDeviceGetCurrentClocksEventReasons  # noqa: N815

    def _put_health(self, handle: Any, field: str, number: Any) -> int:
        code, value = self._health(handle, field)
        if code == SUCCESS:
            number._obj.value = value
        return code

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, processes: Any) -> int:  # noqa: N802
        code, pids = self._health(handle, "pids")
        if code != SUCCESS or not pids:
            count._obj.value = 0
            return code
        if processes is None:
            count._obj.value = len(pids)
            return 7  # INSUFFICIENT_SIZE
        for place, pid in enumerate(pids):
            processes[place].pid = pid
        count._obj.value = len(pids)
        return SUCCESS

    def _nvmlEventSetCreate(self, events: Any) -> int:  # noqa: N802
        set_address(events._obj, 77)
        return SUCCESS

    def _nvmlEventSetFree(self, _events: Any) -> int:  # noqa: N802
        self.watched.clear()
        return SUCCESS

    def _nvmlDeviceGetSupportedEventTypes(self, handle: Any, number: Any) -> int:  # noqa: N802
        code, _ = self._value(handle, "index")
        number._obj.value = 0x1F
        return code

    def _nvmlDeviceRegisterEvents(self, handle: Any, kinds: Any, _events: Any) -> int:  # noqa: N802
        assert kinds.value == 8  # XIDs
        self.watched.append(address(handle) - 1)
        return SUCCESS

    def _nvmlEventSetWait_v2(self, _events: Any, data: Any, wait_ms: Any) -> int:  # noqa: N802
        assert wait_ms.value == 0
        told = next((event for event in self.events if event[0] in self.watched), None)
        if told is None:
            return self.event_error
        self.events.remove(told)
        set_address(data._obj.device, told[0] + 1)
        data._obj.eventType, data._obj.eventData = 8, told[1]
        return SUCCESS

    def _nvmlDeviceGetGpuFabricInfoV(self, handle: Any, info: Any) -> int:  # noqa: N802
        if info._obj.version >> 24 > self._fabric_version:
            return VERSION_MISMATCH
        return self._fabric(handle, info._obj)

    def _nvmlDeviceGetGpuFabricInfo(self, handle: Any, info: Any) -> int:  # noqa: N802
        return self._fabric(handle, info._obj)

    def _fabric(self, handle: Any, info: Any) -> int:
        code, fabric = self._value(handle, "fabric")
        if code != SUCCESS:
            return code
        info.clusterUuid[:] = bytes.fromhex(fabric.cluster_uuid)
        info.status, info.cliqueId = fabric.status, fabric.clique_id
        info.state = 0xABCDEF00 | fabric.state  # C writes one byte of four
        if self._fabric_version > 1:
            info.healthMask = fabric.health_mask or 0
        if self._fabric_version > 2:
            info.healthSummary = fabric.health_summary or 0
        return SUCCESS

    def _nvmlDeviceGetNvLinkCapability(self, handle: Any, link: int, _capability: int, number: Any) -> int:  # noqa: N802
        return self._put_of_link(handle, link, "p2p", number)

    def _nvmlDeviceGetNvLinkRemotePciInfo_v2(self, handle: Any, link: int, info: Any) -> int:  # noqa: N802
        code, found = self._link(handle, link)
        if found is None:
            return code
        code, value = _answer(found, "remote_bus_id")
        if code == SUCCESS:
            info._obj.busId = value.encode("latin-1")
        return code

    def _pair(self, one: Any, other: Any) -> PairReading:
        ends = tuple(sorted((address(one) - 1, address(other) - 1)))
        return next(pair for pair in self._readings.pairs if (pair.a, pair.b) == ends)

    def _nvmlDeviceGetTopologyCommonAncestor(self, one: Any, other: Any, number: Any) -> int:  # noqa: N802
        code, value = _answer(self._pair(one, other), "common_ancestor")
        number._obj.value = value or 0
        return code

    def _nvmlDeviceGetP2PStatus(self, one: Any, other: Any, what: Any, number: Any) -> int:  # noqa: N802
        ctypes.c_uint(what)  # refuses the tuple that the binding's own constant is
        code, value = _answer(self._pair(one, other), "p2p_nvlink" if what == 2 else "p2p_read")
        number._obj.value = value or 0
        return code


def _answer(reading: msgspec.Struct, field: str) -> tuple[int, Any]:
    errors: dict[str, str] = getattr(reading, "errors", {})
    if field in errors:
        return CODES[errors[field]], None
    value = getattr(reading, field)
    return (NOT_SUPPORTED, None) if value is None else (SUCCESS, value)
