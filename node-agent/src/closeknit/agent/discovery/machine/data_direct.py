"""Where a ConnectX reaches the memory of GPUs, which is not always where it stands in the PCI tree. Pure.

On Grace with ConnectX-8 (GB300, and GB200 of that kind) a card is two functions: the NIC below a root of its own, and a
DMA function beside a GPU, below the root of that GPU (Data Direct). The NIC's own place says nothing of the way of the
data. Both functions have the uuid of the card in their vital product data. rdma_topo of rdma-core pairs by it, and NCCL
2.27.3 and later take the place of the DMA function for that of the NIC (net_ib/init.cc asks libmlx5).
"""

from closeknit.agent.discovery.readings import pci
from closeknit.agent.discovery.readings.readings import PciReading, RdmaReading, Readings
from closeknit.machine.products import product_of

# Cards that may have a DMA function: ConnectX-8 and -9 by the ids of rdma_topo, and the virtual functions of all mlx5.
CARDS = ("0x1023", "0x1025", "0x101e")
PCI = "pci"  # of the errors of readings: the folder of devices, or with a slash and its address one of them


def data_place(device: RdmaReading, place: PciReading | None, readings: Readings) -> PciReading | None:
    """The function through which data pass between an RDMA device and GPUs; None where that is unknown.

    `place`: the device's own function. It is the one unless a DMA function has the uuid of the device's card. Of a card
    that may own one, of several, of one that another card claims, too, or without a uuid to tell by, which only root
    may read, it is unknown.
    """
    functions = [each for each in readings.pci if pci.is_dma_function(each)]
    uuid = device.card_uuid
    own = [each for each in functions if each.card_uuid == uuid] if uuid is not None else []
    if own:
        cards = {pci.card(each.address) for each in readings.rdma if each.card_uuid == uuid}
        return own[0] if len(own) == len(cards) == 1 else None
    may_own_one = place is not None and place.vendor in (pci.MELLANOX_VENDOR, None) and place.device in (*CARDS, None)
    are_all_others = uuid is not None and all(each.card_uuid is not None for each in functions)
    is_one_hidden = _may_hide_one(readings, has_others=bool(functions))
    return None if may_own_one and (is_one_hidden or (functions and not are_all_others)) else place


def _may_hide_one(readings: Readings, *, has_others: bool) -> bool:
    """Whether there may be a DMA function that is not listed: beside some products each card has one, which a
    hypervisor may not show, or a PCI device could not be read.

    One that went while it was read is none on a machine without any: else every card there would lose its place.
    """
    products = map(product_of, {gpu.name for gpu in readings.gpus})
    if any(product is not None and product.has_data_direct for product in products):
        return True
    listed = {f"{PCI}/{device.address}" for device in readings.pci}
    return any(
        fact.partition("/")[0] == PCI and fact not in listed and (has_others or word != "ENOENT")
        for fact, word in readings.errors.items()
    )
