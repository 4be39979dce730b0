"""NICs of DRANET: those in its ResourceSlices, DeviceClasses to claim them by, and those in use on a node."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from closeknit.api.names import CLAIMED_PREFIX
from closeknit.machine.graph import Machine

_RDMA = r"device\.attributes\[(['\"])dra\.net\1\]\.rdma"
# The terms of a DeviceClass that leave out no RDMA NIC of the driver. It is unknown here of any other term what it
# selects.
_DRIVER = re.compile(r"device\.driver\s*==\s*(['\"])dra\.net\1")
_HARMLESS = (_DRIVER, re.compile(rf"has\({_RDMA}\)"), re.compile(rf"{_RDMA}(\s*==\s*true)?"))


class NicDevice(msgspec.Struct, frozen=True):
    """One RDMA NIC of a slice."""

    name: str
    pci_address: str
    """As the driver spells it: a claim must, too."""
    is_usable: bool
    """Whether a claim can have it for itself: not tainted, and not shareable by several claims."""


class NicSlice(msgspec.Struct, frozen=True):
    """A part of one node's pool of NICs."""

    name: str
    node: str
    pool: str
    generation: int
    slice_count: int
    """Number of slices of the pool in this generation."""
    devices: tuple[NicDevice, ...]


@dataclass(frozen=True, slots=True)
class NicPools:
    """The NICs in a node's slices."""

    addresses: Mapping[str, str]
    """PCI address as in NodeTopology -> as the driver spells it, of claimable NICs: those of the newest generation of
    complete pools, because the scheduler allocates nothing from others."""
    devices: Mapping[tuple[str, str], str]
    """(pool, device) -> PCI address as in NodeTopology; older generations included, because claims outlive them."""


NO_NICS = NicPools({}, {})


def nic_pools(slices: Iterable[NicSlice], is_tainted: Callable[[str, str], bool]) -> NicPools:
    """The NICs in the slices of one node; `is_tainted` gives others' taints by pool and device."""
    by_pool: dict[str, list[NicSlice]] = {}
    for entry in sorted(slices, key=lambda entry: (entry.pool, entry.generation, entry.name)):
        by_pool.setdefault(entry.pool, []).append(entry)
    if not by_pool:
        return NO_NICS
    addresses: dict[str, str] = {}
    devices: dict[tuple[str, str], str] = {}
    for pool, every in by_pool.items():
        newest = [entry for entry in every if entry.generation == every[-1].generation]
        is_complete = len(newest) >= max(entry.slice_count for entry in newest)
        for entry in every:
            for device in entry.devices:
                devices[pool, device.name] = _plain(device.pci_address)
                is_newest = is_complete and entry.generation == every[-1].generation
                if is_newest and device.is_usable and not is_tainted(pool, device.name):
                    addresses[_plain(device.pci_address)] = device.pci_address
    return NicPools(addresses, devices)


def _plain(address: str) -> str:
    """As the kernel spells it: 0000:1a:00.0 of 00000000:1A:00.0."""
    domain, colon, rest = address.strip().lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}" if colon and not domain[:-4].strip("0") else address.lower()


def selects_nics(expressions: Iterable[str]) -> bool:
    """Whether a DeviceClass of these CEL expressions is DRANET's, and every RDMA NIC of DRANET is of that class."""
    terms = [term.strip() for expression in expressions for term in expression.split("&&")]
    return any(map(_DRIVER.fullmatch, terms)) and all(
        any(known.fullmatch(term) for known in _HARMLESS) for term in terms
    )


NicHolder = tuple[str, str]
"""Namespace and name of a job, by its booking, or of a claim."""


@dataclass(frozen=True, slots=True)
class NicOffer:
    """The NICs of a node that a Pod can claim one by one."""

    device_class: str
    addresses: Mapping[int, str]
    """Row of the machine's nics -> PCI address as the driver spells it."""
    holders: Mapping[int, NicHolder]
    """Holder of each held one, by row. A claim has a NIC for itself."""

    @property
    def resource(self) -> str:
        """Its name in place of other NICs' resource."""
        return f"{CLAIMED_PREFIX}{self.device_class}"

    @property
    def free(self) -> int:
        """Number of claimable ones now."""
        return len(self.addresses) - len(self.holders)

    def is_taken(self, row: int) -> bool:
        """Whether a NIC is unclaimable now."""
        return row not in self.addresses or row in self.holders

    def freed(self, gone: Collection[NicHolder]) -> "NicOffer":
        """The offer as if these held nothing."""
        holders = {row: holder for row, holder in self.holders.items() if holder not in gone}
        return NicOffer(self.device_class, self.addresses, holders)


def nic_offer(
    machine: Machine,
    pools: NicPools,
    device_class: str | None,
    booked: Iterable[tuple[str, NicHolder]],
    claimed: Iterable[tuple[tuple[str, str], NicHolder]],
) -> NicOffer | None:
    """The claimable NICs of a node; None where DRANET offers no RDMA NIC of the machine, or no DeviceClass to claim by
    is known. `booked` are (name:port of a NIC, job), `claimed` ((pool, device), claim)."""
    rows = {row: _plain(nic.pci_address) for row, nic in enumerate(machine.nics) if nic.pci_address}
    addresses = {row: pools.addresses[plain] for row, plain in rows.items() if plain in pools.addresses}
    if not addresses or device_class is None:
        return None
    named = {f"{nic.name}:{nic.port}": rows[row] for row, nic in enumerate(machine.nics) if row in rows}
    held: dict[str, NicHolder] = {}
    for name, holder in booked:
        if name in named:
            held.setdefault(named[name], holder)
    for device, holder in claimed:
        if device in pools.devices:
            held.setdefault(pools.devices[device], holder)
    # Ports of one function have one address, and come and go together.
    holders = {row: held[plain] for row, plain in rows.items() if row in addresses and plain in held}
    return NicOffer(device_class, addresses, holders)
