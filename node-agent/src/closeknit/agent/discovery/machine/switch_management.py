"""RDMA devices that manage NVSwitches, told without root. Pure.

From Blackwell on, an HGX board has no NVSwitch in the PCI tree, but a ConnectX-7 of its own whose four functions reach
the switches' management. They look like NICs in all else: their ports are InfiniBand, active, at 100 Gb/s. A job that
is told to use them hangs.
"""

from closeknit.agent.discovery.readings.pci import MELLANOX_VENDOR
from closeknit.agent.discovery.readings.readings import PciReading, RdmaReading

# Firmware ids (PSID) of that board, which sysfs shows everybody as board_id. The first was seen on B200 machines of
# several makers, the second on HGX B300; the others stand with the first in NVIDIA's own list of this board (mstflint,
# UNSUPPORTED_PSIDS_PER_DEV_ID of mstfwreset). The next generation will have another.
BOARD_IDS = (
    "MT_0000001121",
    "NVD0000000079",
    "MT_0000001122",
    "MT_0000001181",
    "MT_0000001182",
    "OMN0000000006",
)
# The lanes that the board was made with (PCIe 4.0 x2, seen on the same machines). NICs for a fabric of 100 Gb/s and
# more have eight or sixteen, in whatever slot they sit: the file is about the device, and not about the slot. So few
# carry 4 GB/s at most, and so no NIC that is left out by mistake would have been of use to a gang.
MOST_LANES = 2
INFINIBAND_CLASS = "0x0207"


def is_switch_management(device: RdmaReading, place: PciReading | None) -> bool:
    """Whether the device manages NVSwitches.

    Its vital product data say so for sure (SMDL=SW_MNG, NVIDIA's own rule), but only to root. Without them the board's
    id is as sure, and the width stands in for boards whose id is in no list yet.
    """
    if device.is_switch_management is not None:
        return device.is_switch_management
    if device.board_id in BOARD_IDS:
        return True
    if place is None or place.vendor != MELLANOX_VENDOR or not (place.device_class or "").startswith(INFINIBAND_CLASS):
        return False
    return place.max_link_width is not None and 0 < place.max_link_width <= MOST_LANES
