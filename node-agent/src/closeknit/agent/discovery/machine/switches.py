"""What says that a machine has NVSwitches where no NVLink is up that would lead into one. Pure.

A machine whose switches were lost before anybody looked would else be taken for one whose GPUs were never joined.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from closeknit.agent.discovery.readings import pci
from closeknit.agent.discovery.readings.readings import GpuReading, PciReading
from closeknit.machine.products import product_of

FABRIC_NOT_SUPPORTED = 0


def evidence(gpus: Sequence[GpuReading], devices: Iterable[PciReading], is_virtual: bool | None) -> str | None:
    """Why NVSwitches join these GPUs, as a clause; None where nothing says so.

    The number of GPUs proves nothing in a virtual machine, which may be given GPUs without their NVLinks.
    """
    if any(gpu.fabric is not None and gpu.fabric.state != FABRIC_NOT_SUPPORTED for gpu in gpus):
        return "the driver has them take part in an NVLink fabric"
    if any(each.device_class == pci.NVSWITCH_CLASS and each.vendor == pci.NVIDIA_VENDOR for each in devices):
        return "there are NVSwitches among the PCI devices"
    for name, count in Counter(gpu.name for gpu in gpus if gpu.name is not None).items() if is_virtual is False else ():
        known = product_of(name)
        if known is not None and known.switches_above is not None and count > known.switches_above:
            return f"{count} {name} in one machine always have NVSwitches"
    return None
