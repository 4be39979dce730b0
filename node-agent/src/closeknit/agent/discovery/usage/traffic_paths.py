"""Paths of a container's data, concluded from counters. Pure.

A counter of NVLinks belongs to a GPU, and so to the container that alone holds it. Those of a node's RDMA ports have no
holder: they are a container's if no other one holds a GPU of the node. Its interfaces are told under the same
condition, and where the ports and the NVLinks of its GPUs can be counted: readers of `Socket` without `RDMA` or
`NVLink` conclude that nothing moved there.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from closeknit.agent.discovery.readings.byte_counters import ByteCounters
from closeknit.api.nodetopology import NodeTopologySpec, RdmaNamespaces
from closeknit.api.nodetopology_status import Allocation, TrafficPath

# So much is data of a job, and no setup, health check or log: the gradients of one step of a small model are more.
MOVED_BYTES = 256 << 20
LOOK_S = 60.0  # between two looks at the counters: those of a GPU's NVLinks take 1.5 ms of a core

# Namespace, Pod, container and devices: another container is another one, and so is one that was given other devices.
Key = tuple[str, str, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class TrafficPaths:
    """What has moved for each container since it was first seen to hold its GPUs."""

    last: ByteCounters = field(default_factory=ByteCounters)
    moved: Mapping[Key, Mapping[TrafficPath, int]] = field(default_factory=dict)

    def paths(self, allocation: Allocation) -> list[TrafficPath]:
        """The ways of this container's data until now, in the order of their names in the API."""
        moved = self.moved.get(key(allocation), {})
        return [path for path in TrafficPath if moved.get(path, 0) >= MOVED_BYTES]


def key(allocation: Allocation) -> Key:
    """What the container is known by; the kubelet does not tell the Pod's uid."""
    return allocation.namespace, allocation.pod, allocation.container, tuple(allocation.devices)


def after(
    trail: TrafficPaths,
    held: Sequence[Allocation],
    now: ByteCounters,
    ports: Collection[str] | None,
    linked: Collection[str],
) -> TrafficPaths:
    """The trail after one more look at the counters; who held nothing at the last one begins with this one.

    There is a look whenever a container comes or goes, so that who was alone at two looks was alone between them.
    `ports`: the RDMA ports that carry jobs' data, as in `rdma_ports`; `linked`: GPUs that have NVLinks.
    """
    keys = [key(each) for each in held]
    alone = len(keys) == 1 and trail.moved.keys() == {*keys}
    holders = Counter(device for *_, devices in keys for device in devices)
    holders_before = Counter(device for *_, devices in trail.moved for device in devices)
    moved = {}
    for each in keys:
        found = dict.fromkeys(TrafficPath, 0) | dict(trail.moved.get(each, {}))
        own = [device for device in each[3] if holders[device] == 1 == holders_before[device]]
        if each in trail.moved:
            found[TrafficPath.NVLINK] += sum(_risen(trail.last.nvlink, now.nvlink, uuid) for uuid in own)
            if alone and ports is not None:
                found[TrafficPath.RDMA] += sum(_risen(trail.last.rdma, now.rdma, port) for port in ports)
                sent = now.nvlink if found[TrafficPath.NVLINK] < MOVED_BYTES else linked
                if now.rdma.keys() >= {*ports} and {*own} & {*linked} <= {*sent}:
                    found[TrafficPath.SOCKET] += max((_risen_in(trail.last, now, uuid) for uuid in own), default=0)
        moved[each] = found
    return TrafficPaths(now, moved)


def is_due(trail: TrafficPaths, held: Sequence[Allocation], age_s: float) -> bool:
    """Whether to look at the counters again, so long after the last time."""
    return {key(each) for each in held} != trail.moved.keys() or (bool(held) and age_s >= LOOK_S)


def wanted(trail: TrafficPaths, held: Sequence[Allocation]) -> list[str]:
    """The GPUs whose counters of NVLinks can still tell anything, by uuid."""
    return sorted(device for each in held if TrafficPath.NVLINK not in trail.paths(each) for device in each.devices)


def rdma_ports(spec: NodeTopologySpec) -> frozenset[str] | None:
    """The RDMA ports of the node; None where it may have others: those of network namespaces go into Pods."""
    if spec.nics is None or spec.capabilities.rdma_namespaces is RdmaNamespaces.EXCLUSIVE:
        return None
    return frozenset(f"{nic.name}:{nic.port}" for nic in spec.nics)


def linked(spec: NodeTopologySpec) -> frozenset[str]:
    """The GPUs that have NVLinks to others, by uuid."""
    if spec.nvlink is None:
        return frozenset()
    counts = dict(zip((gpu.index for gpu in spec.gpus), spec.nvlink.links_per_gpu, strict=False))
    paired = {index for pair in spec.nvlink.pairs for index in (pair.a, pair.b)}
    return frozenset(gpu.uuid for gpu in spec.gpus if gpu.uuid and (counts.get(gpu.index) or gpu.index in paired))


def _risen(last: Mapping[str, int], now: Mapping[str, int], name: str) -> int:
    if name not in last or name not in now:
        return 0
    return now[name] - last[name] if now[name] >= last[name] else 0


def _risen_in(last: ByteCounters, now: ByteCounters, uuid: str) -> int:
    before, after = last.sockets.get(uuid, {}), now.sockets.get(uuid, {})
    return sum(_risen(before, after, interface) for interface in after)
