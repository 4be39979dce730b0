"""Devices as claims, kubelets and agents report them, by the objects of a Cluster."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from closeknit.api.names import GPU_DRA_DRIVER
from closeknit.api.nodetopology_status import TrafficPath
from closeknit.cluster.node.slice_pools import uuid_of
from closeknit.cluster.objects.agent_report import ReportedAllocation
from closeknit.cluster.objects.dra import DeviceTaintRule, ResourceClaim
from closeknit.cluster.pods.pod import UUIDS, Pod
from closeknit.cluster.store.object_store import ObjectTables
from closeknit.cluster.store.table_definitions import (
    ALLOCATIONS,
    DEVICE_TAINT_RULES,
    NIC_SLICES_OF_POOL,
    REPORTS,
    SLICES,
    SLICES_OF_POOL,
    SLICES_ON,
)


class UnhealthyDevice(NamedTuple):
    """A GPU as a device of DRA that its node's agent calls unhealthy."""

    pool: str
    device: str
    why: str
    """The reasons that the agent gives, comma-separated; empty without any."""


@dataclass(frozen=True, slots=True)
class ReportedDevices:
    """GPUs, MIG devices and NICs: whose they are, and which are unhealthy."""

    tables: ObjectTables

    def claimed(self, claim: ResourceClaim) -> tuple[str | None, ...]:
        """UUID of each GPU that the claim holds, in the order of its allocation; None where no slice names it."""
        return tuple(uuid_of(device, self.tables.under(SLICES_OF_POOL, pool)) for pool, device in claim.devices)

    def called_ill(self, pod: Pod) -> frozenset[str]:
        """UUIDs of the Pod's GPUs and MIG devices that its kubelet calls unhealthy."""
        found: set[str | None] = set()
        for device in pod.ill_devices:
            driver, _, rest = device.partition("/")
            pool, _, name = rest.rpartition("/")
            if driver == GPU_DRA_DRIVER and pool:
                found.add(uuid_of(name, self.tables.under(SLICES_OF_POOL, pool)))
            elif device.startswith(UUIDS):
                found.add(device)
        return frozenset(uuid for uuid in found if uuid is not None)

    def nodes_of_nics(self, claim: ResourceClaim) -> frozenset[str]:
        """The nodes whose NICs it holds."""
        under = self.tables.under
        return frozenset(part.node for pool, _ in claim.nics for part in under(NIC_SLICES_OF_POOL, pool))

    def reported(self, pod: Pod) -> tuple[str, ...] | None:
        """UUIDs of the Pod's devices by the kubelet, ascending; None where neither its node's agent nor its status
        names any."""
        found = {device for entry in self._reports_of(pod) for device in entry.devices}
        return tuple(sorted(found)) or pod.devices or None

    def paths_of(self, pod: Pod) -> frozenset[TrafficPath]:
        """Paths of the Pod's data, as its node's agent reports; see `Allocation.paths`."""
        return frozenset(path for entry in self._reports_of(pod) for path in entry.paths)

    def reports_like(self, other: Self, node: str) -> bool:
        """Whether a node's agent certainly reports the same of its containers."""
        return self.tables.all(ALLOCATIONS).get(node) is other.tables.all(ALLOCATIONS).get(node)

    def is_same(self, other: Self) -> bool:
        """Whether `claimed`, `reported` and `paths_of` certainly return the same for the same claims and Pods."""
        mine, others = self.tables, other.tables
        return mine.all(ALLOCATIONS) is others.all(ALLOCATIONS) and mine.all(SLICES) is others.all(SLICES)

    def _reports_of(self, pod: Pod) -> Iterator[ReportedAllocation]:
        return (
            entry
            for entry in self.tables.all(ALLOCATIONS).get(pod.node) or ()
            if (entry.namespace, entry.pod) == pod.key and (not entry.pod_uid or entry.pod_uid == pod.uid)
        )

    def unhealthy(self) -> Iterator[UnhealthyDevice]:
        """GPUs that their node's agent calls unhealthy, as the devices of their driver's slices, in no order."""
        tables = self.tables
        for name, report in tables.all(REPORTS).items():
            if not report.unhealthy or report.machine is None:
                continue
            ill = {
                gpu.uuid: report.unhealthy[gpu.index] for gpu in report.machine.gpus if gpu.index in report.unhealthy
            }
            for part in tables.under(SLICES_ON, name):
                for device in part.devices:
                    if device.whole and device.uuid and device.uuid in ill:
                        yield UnhealthyDevice(part.pool, device.name, ill[device.uuid])

    @property
    def own_taint_rules(self) -> tuple[DeviceTaintRule, ...]:
        """DeviceTaintRules of ours, by name."""
        found = (rule for rule in self.tables.all(DEVICE_TAINT_RULES).values() if rule.is_ours)
        return tuple(sorted(found, key=lambda rule: rule.name))
