"""What a pasted text says beside its table: what `nvidia-smi` and `nvidia-smi -L` print, and the legend of NICs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# `GPU 0: NVIDIA H200 (UUID: GPU-…)`
_LISTED = re.compile(r"(?:^|\s)GPU\s+(\d+):\s+(\S.{0,60}?)\s+\(UUID:\s*(GPU-[0-9a-fA-F-]{36})\)")
# `|   0  NVIDIA H200                On  |   00000000:06:00.0 Off |                    0 |`
_TABLED = re.compile(
    r"\|\s+(\d+)\s+(\S.{0,60}?)\s+(?:On|Off|N/A)\s+\|\s+([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s"
)
_DRIVER = re.compile(r"Driver Version:\s*(\d{1,4}(?:\.\d{1,4}){1,2})")
_CUDA = re.compile(r"CUDA Version:\s*(\d{1,3}\.\d{1,2})")
_NIC = re.compile(r"(?:^|\s)(NIC\d+):\s*([A-Za-z][\w.-]{0,62})\s*$")


@dataclass(frozen=True, slots=True)
class Named:
    """One GPU as other outputs call it."""

    product: str
    uuid: str | None = None
    pci_address: str | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is said beside the table; empty where nothing is."""

    gpus: dict[str, Named]
    """By the name of the column: GPU0."""
    nics: dict[str, str]
    """RDMA devices by the name of the column: NIC0."""
    driver_version: str | None
    cuda_version: str | None


def surroundings(lines: Sequence[str]) -> Surroundings:
    """What these lines say; where they say two things of one GPU or NIC, as the texts of two machines do, neither."""
    gpus: dict[str, set[Named]] = {}
    nics: dict[str, set[str]] = {}
    for line in lines:
        if match := _LISTED.search(line):
            gpus.setdefault(f"GPU{match[1]}", set()).add(Named(match[2], uuid=match[3]))
        elif match := _TABLED.search(line):
            gpus.setdefault(f"GPU{match[1]}", set()).add(Named(match[2], pci_address=_address(match[3])))
        elif match := _NIC.search(line):
            nics.setdefault(match[1], set()).add(match[2])
    text = "\n".join(lines)
    return Surroundings(
        gpus={name: merged for name, found in gpus.items() if (merged := _merged(found)) is not None},
        nics={name: device for name, (device, *others) in nics.items() if not others},
        driver_version=_only(_DRIVER.findall(text)),
        cuda_version=_only(_CUDA.findall(text)),
    )


def _merged(found: set[Named]) -> Named | None:
    """One GPU of both outputs; the table cuts long names off, and ends them in dots."""
    products = sorted({named.product for named in found}, key=len)
    uuids = {named.uuid for named in found if named.uuid}
    addresses = {named.pci_address for named in found if named.pci_address}
    longest = products[-1]
    if len(uuids) > 1 or len(addresses) > 1 or not all(longest.startswith(name.rstrip(".")) for name in products):
        return None
    return Named(longest, next(iter(uuids), None), next(iter(addresses), None))


def _only(found: Sequence[str]) -> str | None:
    return found[0] if len(set(found)) == 1 else None


def _address(bus_id: str) -> str:
    """A PCI address as sysfs prints it: 00000000:1A:00.0 -> 0000:1a:00.0."""
    domain, _, rest = bus_id.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"
