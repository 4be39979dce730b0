"""Names of CPUs, and the bandwidth between sockets. Pure."""

from collections.abc import Mapping

from closeknit.agent.discovery.readings.readings import CpuReading, KernelReading

# Implementer and part of Arm's MIDR register -> core, as util-linux prints it (sys-utils/lscpu-arm.c): those of servers
# that take NVIDIA's GPUs.
ARM_CORES: Mapping[tuple[str, str], str] = {
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x41", "0xd83"): "Neoverse-V3AE",
    ("0x41", "0xd84"): "Neoverse-V3",
    ("0x46", "0x001"): "A64FX",
    ("0x48", "0xd01"): "TaiShan-v110",
    ("0x4e", "0x010"): "Olympus",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1a",
}
# GB/s per direction that NCCL reckons with between two sockets (src/graph/topo.h): no data sheet's figure, but what its
# search chooses rings by, and so what decides how a job runs. Intel's by the model number of family 6: Granite Rapids'
# sits among those of Sapphire Rapids.
INTEL_FAMILY = 6
INTEL_GB_S = ((0xCF, 40.0), (0x8F, 22.0), (0x55, 10.0), (0, 6.0))
AMD_GB_S, ARM_GB_S, POWER9_GB_S = 16.0, 6.0, 32.0


def model(kernel: KernelReading) -> str | None:
    """The CPU's name: the kernel's where it prints one, else by its numbers. Arm's numbers are in it if in no table."""
    cpu = kernel.cpu
    if kernel.cpu_model is not None:
        return kernel.cpu_model
    if cpu.power is not None:
        return cpu.power.partition(",")[0].strip() or None
    if cpu.implementer is None or cpu.part is None:
        return None
    core = ARM_CORES.get((cpu.implementer, cpu.part))
    return f"Arm {core}" if core else f"Arm implementer {cpu.implementer} part {cpu.part}"


def inter_socket_gb_s(cpu: CpuReading) -> float | None:
    """Bandwidth between two sockets; None with one socket, and of a CPU that is in no table."""
    if cpu.sockets is None or cpu.sockets < 2:
        return None
    if cpu.implementer is not None:
        return ARM_GB_S
    if cpu.power is not None:
        return POWER9_GB_S if cpu.power.upper().startswith("POWER9") else None
    if cpu.vendor == "AuthenticAMD":
        return AMD_GB_S
    number = cpu.model
    if cpu.vendor != "GenuineIntel" or cpu.family != INTEL_FAMILY or number is None:
        return None
    return next((bandwidth for first, bandwidth in INTEL_GB_S if number >= first), None)
