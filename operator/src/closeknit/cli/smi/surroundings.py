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
_GIVE = "give that of nvidia-smi topo -m"
# What else is pasted, by a line that nothing but it has: the first that is there counts.
_OTHERS = (
    (re.compile(r"^\s*(?:apiVersion|\"apiVersion\")\s*:"), "is a file of Kubernetes objects; give it by --filename"),
    (
        re.compile(r"^\s*NVIDIA-SMI has failed|couldn't communicate with the NVIDIA driver|^\s*No devices were found"),
        f"is what nvidia-smi prints where it reaches no GPU; {_GIVE} on the machine itself",
    ),
    (
        re.compile(r"^\s*Link \d{1,2}[:,]\s"),
        f"is what nvidia-smi nvlink prints: the links of each GPU, and not where they lead; {_GIVE}",
    ),
    (
        re.compile(r"^\s*=+NVSMI LOG=+|^\s*<nvidia_smi_log>"),
        f"is what nvidia-smi -q prints, which tells no distances; {_GIVE}",
    ),
    (
        re.compile(r"^\s*RDMA NIC(?:=| Board=| Parent=)"),
        f"is what rdma_topo prints: which NIC belongs to which GPU, and not what joins the GPUs; {_GIVE}, or have the "
        "node agent read both",
    ),
    (_LISTED, f"is what nvidia-smi -L prints: which GPUs there are, and not what joins them; {_GIVE}"),
    (_TABLED, f"is what nvidia-smi alone prints: which GPUs there are, and not what joins them; {_GIVE}"),
    (
        re.compile(r"ROCm System Management Interface|=+ .*ROCm"),
        "is what rocm-smi prints, of AMD's GPUs; closeknit places NVIDIA's",
    ),
)
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


def what_else(lines: Sequence[str]) -> str | None:
    """What a text without a table of `topo -m` is, and what to give instead; None where that is not known."""
    return next((words for pattern, words in _OTHERS if any(map(pattern.search, lines))), None)


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
