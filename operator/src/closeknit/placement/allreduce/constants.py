"""The constants that NCCL plans with, as of NCCL 2.30: GB/s per direction unless a name says otherwise.

They are not data-sheet values: NCCL writes down what a link really carries and plans rings with that (its graph/topo.h,
graph/topo.cc and graph/search.cc). A machine's measured inter-socket bandwidth wins over the table.
"""

import re
from functools import lru_cache
from typing import NamedTuple

# Speeds that NCCL tries for the rings of one node, fastest first, by the lowest compute capability among the GPUs.
_RINGS_SM100 = (90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0)
_RINGS_SM90 = (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0)
_RINGS = (40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0)
# Speeds that it tries for traffic between nodes.
_NETWORK_SM100 = (96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0)
_NETWORK_SM90 = (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0)
_NETWORK = (48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.4, 1.2)

# PCIe, in units of 100 Mb/s per lane; NCCL divides lanes times this by 80.
_PCIE_LANE = {1: 15, 2: 30, 3: 60, 4: 120, 5: 240, 6: 480}

INTEL_HOST_BRIDGE_FACTOR = (6, 5)  # GPU to GPU through an Intel host bridge takes 6/5 of its bandwidth (topo.h)


class Cpu(NamedTuple):
    """What the bandwidth model needs to know of a CPU."""

    intel: bool
    inter_socket_gb_s: float


def ring_speeds(sm: int) -> tuple[float, ...]:
    """Speeds per ring that NCCL tries inside a node, fastest first; sm is compute capability times ten, as 90."""
    return _RINGS_SM100 if sm >= 100 else _RINGS_SM90 if sm >= 90 else _RINGS


def network_speeds(sm: int) -> tuple[float, ...]:
    """Speeds per ring that NCCL tries between nodes, fastest first."""
    return _NETWORK_SM100 if sm >= 100 else _NETWORK_SM90 if sm >= 90 else _NETWORK


def nvlink_gb_s(sm: int) -> float:
    """Bandwidth of one NVLink."""
    if sm >= 100:
        return 40.1
    if sm >= 90:
        return 20.6
    if sm == 86:
        return 12.0
    return 18.0 if 60 <= sm < 70 else 20.0


def pcie_gb_s(sm: int, generation: int | None, width: int | None) -> float:
    """Bandwidth of a PCIe slot. What is unknown is taken as the GPU's own best: 16 lanes of its architecture's PCIe."""
    if generation is None:
        generation = 5 if sm >= 90 else 4 if sm >= 80 else 3  # Hopper, Ampere, Volta and before: their data sheets
    return (width or 16) * _PCIE_LANE[min(generation, 6)] / 80


_XEON_E = re.compile(r"xeon.*\be[57]-")
_XEON_SCALABLE = re.compile(r"xeon.*\b(?:platinum|gold|silver|bronze)\s+(?:\d)(\d)\d\d")
_XEON_6 = re.compile(r"xeon.*\b6[5-9]\d\d[pe]?\b")


def cpu(model: str | None, inter_socket_gb_s: float | None) -> Cpu:
    """What kind of CPU a model name means; an unknown one counts as Intel of 2017, the slowest that is common."""
    name = (model or "").lower()
    found = _cpu_of_name(name)
    return found if inter_socket_gb_s is None else found._replace(inter_socket_gb_s=inter_socket_gb_s)


@lru_cache(maxsize=256)
def _cpu_of_name(name: str) -> Cpu:
    if "amd" in name or "epyc" in name or "threadripper" in name:
        return Cpu(intel=False, inter_socket_gb_s=16.0)
    if any(word in name for word in ("arm", "neoverse", "aarch64", "grace")):
        return Cpu(intel=False, inter_socket_gb_s=6.0)
    if "power9" in name:
        return Cpu(intel=False, inter_socket_gb_s=32.0)
    if "zhaoxin" in name:
        return Cpu(intel=False, inter_socket_gb_s=6.0)
    if _XEON_E.search(name):  # Broadwell and before
        return Cpu(intel=True, inter_socket_gb_s=6.0)
    scalable = _XEON_SCALABLE.search(name)
    if scalable and scalable.group(1) == "5":  # Emerald Rapids
        return Cpu(intel=True, inter_socket_gb_s=40.0)
    if (scalable and scalable.group(1) == "4") or _XEON_6.search(name):  # Sapphire Rapids; Granite Rapids
        return Cpu(intel=True, inter_socket_gb_s=22.0)
    return Cpu(intel=True, inter_socket_gb_s=10.0)  # Skylake to Ice Lake
