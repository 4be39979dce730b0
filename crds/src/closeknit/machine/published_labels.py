"""Node labels: small facts about a machine for `kubectl get nodes -L` and node selectors."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from closeknit.api.names import NodeLabel
from closeknit.api.nodetopology import Gpu, MigDevice, MigMode, NodeTopologySpec, PortState
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.machine.graph import Machine
from closeknit.machine.health import unusable_gpus, working_machine
from closeknit.machine.islands import islands

GIB = 2**30
# RFC 1123: at most 63 characters, a letter or digit at both ends. What does not fit is left out, not cut: a cut fact is
# another fact.
_VALUE = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")

_T = TypeVar("_T")
Facts = dict[NodeLabel, str | None]


def node_labels(spec: NodeTopologySpec, status: NodeTopologyStatus) -> dict[str, str]:
    """The labels of a node, key with prefix -> value, by key. Raises InvalidTopology.

    A fact that is unknown, or on which the GPUs of the node differ, has no label. Source: docs/decisions/0005.
    """
    machine = working_machine(spec, status)
    facts = _gpu_facts(spec) | _nvlink_facts(spec, machine, status) | _mig_facts(spec)
    if spec.nics is not None:
        facts |= _rdma_facts(machine)
    capabilities = spec.capabilities
    facts |= {
        NodeLabel.GPUDIRECT_RDMA: capabilities.gpu_direct_rdma.lower() if capabilities.gpu_direct_rdma else None,
        NodeLabel.GPUDIRECT_STORAGE: _truth(capabilities.gpu_direct_storage),
        NodeLabel.GPUDIRECT_P2P: _truth(capabilities.gpu_direct_p2p),
        NodeLabel.TOPOLOGY_CLASS: machine.topology_class,
        NodeLabel.HEALTH: "degraded" if status.gpus or status.nics or status.links_down else "healthy",
    }
    return {label.value: value for label, value in sorted(facts.items()) if value and _VALUE.match(value)}


def _gpu_facts(spec: NodeTopologySpec) -> Facts:
    read = [gpu for gpu in spec.gpus if gpu.uuid is not None]  # a GPU that is lost says nothing about the others
    memory = _common(gpu.memory_bytes for gpu in read)
    return {
        NodeLabel.GPU_PRODUCT: _common(gpu.product for gpu in read),
        NodeLabel.GPU_COUNT: str(len(spec.gpus)),
        NodeLabel.GPU_MEMORY_GIB: str(memory // GIB) if memory else None,
        NodeLabel.GPU_ARCHITECTURE: _common(gpu.architecture for gpu in read),
    }


def _nvlink_facts(spec: NodeTopologySpec, machine: Machine, status: NodeTopologyStatus) -> Facts:
    unusable = unusable_gpus(status)
    usable = [position for position, gpu in enumerate(machine.gpus) if gpu.index not in unusable]
    kind = _kind(spec)
    if kind == "none":
        return {NodeLabel.NVLINK_KIND: kind, NodeLabel.NVSWITCH: "false"}
    links = max(_links_per_gpu(spec))
    bandwidth = spec.nvlink.link_bandwidth_gb_s
    sizes = sorted((len(island) for island in islands(machine, usable)), reverse=True)
    return {
        NodeLabel.NVLINK_KIND: kind,
        NodeLabel.NVLINK_GENERATION: str(spec.nvlink.generation) if spec.nvlink.generation else None,
        NodeLabel.NVLINK_LINKS_PER_GPU: str(links),
        NodeLabel.NVLINK_GIGABYTES_PER_SECOND: str(round(links * bandwidth)) if bandwidth else None,
        NodeLabel.NVLINK_ISLANDS: "-".join(map(str, sizes)),
        NodeLabel.NVLINK_LARGEST_ISLAND: str(sizes[0]) if sizes else None,
        NodeLabel.NVLINK_DOMAIN: machine.nvlink_domain,
        NodeLabel.NVSWITCH: _truth(spec.nvlink.switched),
    }


def _kind(spec: NodeTopologySpec) -> str:
    """How the GPUs are joined: `bridge` where none has more than one peer, `mesh` where some have."""
    if spec.nvlink.switched:
        return "switch"
    if not spec.nvlink.pairs:
        return "none"
    peers = Counter(end for pair in spec.nvlink.pairs for end in (pair.a, pair.b))
    return "bridge" if max(peers.values()) == 1 else "mesh"


def _links_per_gpu(spec: NodeTopologySpec) -> list[int]:
    if spec.nvlink.switched:
        return spec.nvlink.links_per_gpu
    return [sum(pair.links for pair in spec.nvlink.pairs if gpu.index in (pair.a, pair.b)) for gpu in spec.gpus]


def _mig_facts(spec: NodeTopologySpec) -> Facts:
    modes = {gpu.mig.mode for gpu in spec.gpus if gpu.mig is not None}
    if not modes:
        return {}
    devices = Counter(device.profile.replace("+", ".") for gpu in spec.gpus for device in _mig_devices(gpu))
    return {
        NodeLabel.MIG_MODE: "mixed" if len(modes) > 1 else "enabled" if MigMode.ENABLED in modes else "disabled",
        NodeLabel.MIG_PROFILES: "_".join(f"{profile}-{count}" for profile, count in sorted(devices.items())) or None,
    }


def _mig_devices(gpu: Gpu) -> list[MigDevice]:
    return gpu.mig.devices if gpu.mig is not None else []


def _rdma_facts(machine: Machine) -> Facts:
    """Of the ports that are up and of the transport that most of them speak."""
    active = [nic for nic in machine.nics if nic.state is PortState.ACTIVE]
    if not active:
        return {NodeLabel.RDMA_TRANSPORT: "none"}
    counted = Counter(nic.transport for nic in active)
    transport = min(counted, key=lambda each: (-counted[each], each))
    ports = [nic for nic in active if nic.transport is transport]
    rates = [nic.rate_gb_s for nic in ports if nic.rate_gb_s is not None]
    return {
        NodeLabel.RDMA_TRANSPORT: transport.lower(),
        NodeLabel.RDMA_NICS: str(len(ports)),
        NodeLabel.RDMA_GIGABITS_PER_SECOND: str(round(sum(rates) * 8)) if len(rates) == len(ports) else None,
    }


def _common(values: Iterable[_T | None]) -> _T | None:
    """The value that all have; None where they differ or one is unknown."""
    found = list(values)
    return found[0] if found and all(value == found[0] for value in found) else None


def _truth(value: bool | None) -> str | None:
    return None if value is None else str(value).lower()
