"""Whether a machine is virtual, concluded from what the CPU, the driver and the firmware say. Pure."""

from closeknit.agent.discovery.readings.readings import Readings

GUEST_MODES = (1, 2)  # NVML's virtualization modes of a guest: passthrough, vGPU
# How the firmware of virtual machines begins to name its vendor or product: systemd's list (src/basic/virt.c).
GUEST_FIRMWARE = (
    "KVM",
    "OpenStack",
    "KubeVirt",
    "Amazon EC2",
    "QEMU",
    "VMware",
    "VMW",
    "innotek GmbH",
    "VirtualBox",
    "Xen",
    "Bochs",
    "Parallels",
    "BHYVE",
    "Hyper-V",
    "Virtual Machine",
    "Google Compute Engine",
)
METAL = ".metal"  # Amazon's firmware says EC2 on machines without a hypervisor, too: c7g.metal, u-6tb1.metal-24xl


def virtualized(readings: Readings) -> bool | None:
    """Whether any of them says so; False where the CPU denies it, or the driver of every GPU; None where none tells.

    The CPU's flag is the hypervisor's own word and beats the firmware's name. Only x86 has it: on Arm and POWER a name
    that is in no list proves nothing.
    """
    kernel = readings.kernel
    modes = {gpu.virtualization_mode for gpu in readings.gpus}
    if kernel.has_hypervisor or modes & set(GUEST_MODES):
        return True
    if kernel.has_hypervisor is False:
        return False
    names = (kernel.system_vendor or "", kernel.product_name or "")
    if any(name.startswith(GUEST_FIRMWARE) for name in names) and METAL not in names[1]:
        return True
    return False if modes == {0} else None
