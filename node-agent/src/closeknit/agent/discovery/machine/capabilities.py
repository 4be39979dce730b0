"""What the kernel and the drivers of one machine can do, concluded from its readings. Pure."""

import re

from closeknit.agent.discovery.machine import nvlink
from closeknit.agent.discovery.machine.video_capture import is_capture
from closeknit.agent.discovery.readings.plausible import possible
from closeknit.agent.discovery.readings.readings import KernelReading, Readings
from closeknit.api.nodetopology import Capabilities, RdmaNamespaces, Support

DMA_BUF_KERNEL = (5, 12)  # the first kernel whose verbs take DMA-BUF
NAMESPACES = {"Y": RdmaNamespaces.SHARED, "N": RdmaNamespaces.EXCLUSIVE}


def capabilities(readings: Readings) -> Capabilities:
    """All that is known; each fact by itself."""
    kernel = readings.kernel
    reads = [pair.p2p_read for pair in readings.pairs if pair.p2p_read is not None]
    return possible(
        Capabilities,
        gpu_direct_rdma=gpu_direct_rdma(kernel),
        gpu_direct_storage=_has_storage(kernel),
        gpu_direct_p2p=nvlink.P2P_OK in reads if reads else None,
        gpu_direct_video=any(map(is_capture, readings.pci)) if readings.lists_capture_cards else None,
        memlock_bytes=kernel.memlock_bytes,
        rdma_namespaces=NAMESPACES.get(kernel.rdma_netns_mode or ""),
        topology_manager_policy=kernel.topology_manager_policy,
        cpu_manager_policy=kernel.cpu_manager_policy,
        memory_manager_policy=kernel.memory_manager_policy,
    )


def _has_storage(kernel: KernelReading) -> bool | None:
    if kernel.nvidia_fs_version is not None:
        return True
    return None if "nvidia_fs_version" in kernel.errors else False


def gpu_direct_rdma(kernel: KernelReading) -> Support | None:
    """Whether NICs can reach GPU memory; None where the files that tell were unreadable."""
    if kernel.has_peer_memory:
        return Support.SUPPORTED
    release = re.match(r"(\d{1,4})\.(\d{1,4})", kernel.kernel_release or "")
    if kernel.nvidia_version is None or release is None or kernel.has_peer_memory is None:
        return None
    is_open = "Open Kernel Module" in kernel.nvidia_version
    return Support.LIKELY if is_open and (int(release[1]), int(release[2])) >= DMA_BUF_KERNEL else Support.UNSUPPORTED
