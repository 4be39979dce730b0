"""How this node's GPUs are and what they do now, as /metrics shows it. Series and history are others' work."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Gauge

from closeknit.agent.discovery.readings.activity import LiveGpu
from closeknit.agent.sources.source import Source

FRESH_S = 1.0  # however many ask, the driver is asked once a second

LABELS = ("gpu", "uuid")  # the NVML index; the uuid is empty where NVML does not say it


class GpuMetrics:
    """A registry that is filled at each scrape."""

    def __init__(self, source: Source, node: str = "", gpus: Callable[[], Mapping[str, int]] = dict) -> None:
        """`gpus` gives their number by health, as they were read last."""
        self.registry = CollectorRegistry()
        self._source = source
        self._gpus = gpus
        labels = ("node", "version")
        says = "Always 1; the labels tell the agent's node and its build."
        build = Gauge("closeknit_agent_build_info", says, labels, registry=self.registry)
        build.labels(node, version("closeknit")).set(1)
        self._healths = Gauge(
            "closeknit_agent_gpus",
            "GPUs of this node by health, as the agent read them last: Healthy, Degraded or Unhealthy.",
            ["health"],
            registry=self.registry,
        )
        self._utilization = self._gauge(
            "utilization_ratio", "Share of the time in which anything computed, 0 to 1; absent under MIG."
        )
        self._memory = self._gauge("memory_used_bytes", "Memory in use, with what the driver keeps for itself.")
        self._temperature = self._gauge("temperature_celsius", "Temperature of the GPU.")
        self._power = self._gauge("power_watts", "Power that the GPU draws.")
        self._asked_at = float("-inf")
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Asks the driver, unless it was asked within the last second."""
        async with self._lock:
            now = asyncio.get_running_loop().time
            if now() - self._asked_at >= FRESH_S:
                self._show(await asyncio.to_thread(self._source.live))
                self._asked_at = now()

    def _show(self, gpus: Sequence[LiveGpu]) -> None:
        for gauge in (self._utilization, self._memory, self._temperature, self._power):
            gauge.clear()  # a GPU that no longer answers has no values
        for health, number in self._gpus().items():
            self._healths.labels(health).set(number)
        for gpu in gpus:
            for gauge, value, unit in (
                (self._utilization, gpu.utilization_percent, 100),
                (self._memory, gpu.memory_used_bytes, 1),
                (self._temperature, gpu.temperature_celsius, 1),
                (self._power, gpu.power_milliwatts, 1000),
            ):
                if value is not None:
                    gauge.labels(str(gpu.index), gpu.uuid or "").set(value / unit)

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(f"closeknit_gpu_{name}", documentation, LABELS, registry=self.registry)
