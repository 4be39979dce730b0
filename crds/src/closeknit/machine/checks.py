"""What a NodeTopology must not say: facts that contradict each other, each named by its field."""

from collections.abc import Iterable, Sequence

from closeknit.api.nodetopology import NodeTopologySpec

LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")  # nearest first, the words of nvidia-smi topo -m
ITSELF = "X"


class InvalidTopology(ValueError):  # noqa: N818 - it is the name of the exclusion reason
    """A NodeTopology that contradicts itself; `field` names the place, for example `pcie.levels[2]`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def level_rows(spec: NodeTopologySpec) -> list[list[str]]:
    """`pcie.levels` as words, in the order of `gpus`; empty where unknown."""
    return [row.split() for row in spec.pcie.levels]


def check(spec: NodeTopologySpec) -> None:
    """Raise InvalidTopology for the first contradiction, in the order of the fields."""
    _unique("gpus[{}].index", [gpu.index for gpu in spec.gpus])
    _unique("gpus[{}].uuid", [gpu.uuid for gpu in spec.gpus])
    _unique("gpus[{}].pciAddress", [gpu.pci_address for gpu in spec.gpus])
    _check_mig(spec)
    _check_nvlink(spec)
    _check_pcie(spec)
    _unique("nics[{}]", [f"{nic.name}:{nic.port}" for nic in spec.nics or ()])
    for number, nic in enumerate(spec.nics or ()):
        _check_words(f"nics[{number}].gpuLevels", nic.gpu_levels, len(spec.gpus))
    for number, card in enumerate(spec.capture_devices):
        _check_words(f"captureDevices[{number}].gpuLevels", card.gpu_levels, len(spec.gpus))


def _unique(field: str, values: Iterable[object]) -> None:
    seen: dict[object, int] = {}
    for row, value in enumerate(values):
        if value is None:
            continue
        if value in seen:
            raise InvalidTopology(field.format(row), f"{value} is also that of {field.format(seen[value])}")
        seen[value] = row


def _check_mig(spec: NodeTopologySpec) -> None:
    seen: dict[str, str] = {}
    for row, gpu in enumerate(spec.gpus):
        for number, device in enumerate(gpu.mig.devices if gpu.mig is not None else ()):
            field = f"gpus[{row}].mig.devices[{number}].uuid"
            if device.uuid in seen:
                raise InvalidTopology(field, f"{device.uuid} is also that of {seen[device.uuid]}")
            seen[device.uuid] = field


def _check_nvlink(spec: NodeTopologySpec) -> None:
    count = len(spec.gpus)
    nvlink = spec.nvlink
    for field, values in (("linksPerGPU", nvlink.links_per_gpu), ("cpuLinksPerGPU", nvlink.cpu_links_per_gpu)):
        if values and len(values) != count:
            raise InvalidTopology(
                f"nvlink.{field}", f"has {len(values)} entries; must have one for each of the {count} gpus, or none"
            )
    if nvlink.switched and count and not nvlink.links_per_gpu:
        raise InvalidTopology("nvlink.linksPerGPU", "is missing; with switched: true it has one entry for each GPU")
    if nvlink.switched and nvlink.pairs:
        raise InvalidTopology("nvlink.pairs", "must be empty with switched: true; pairs are links without a switch")
    known = {gpu.index for gpu in spec.gpus}
    seen: dict[tuple[int, int], int] = {}
    for number, pair in enumerate(nvlink.pairs):
        field = f"nvlink.pairs[{number}]"
        for end, index in (("a", pair.a), ("b", pair.b)):
            if index not in known:
                raise InvalidTopology(f"{field}.{end}", f"GPU {index} is not among gpus")
        if pair.a >= pair.b:
            raise InvalidTopology(field, f"a is {pair.a} and b is {pair.b}; a must be below b")
        if (pair.a, pair.b) in seen:
            raise InvalidTopology(
                field, f"{pair.a}-{pair.b} is also nvlink.pairs[{seen[pair.a, pair.b]}]; give each pair once"
            )
        seen[pair.a, pair.b] = number


def _check_pcie(spec: NodeTopologySpec) -> None:
    rows = level_rows(spec)
    if rows and len(rows) != len(spec.gpus):
        raise InvalidTopology(
            "pcie.levels", f"has {len(rows)} rows; must have one for each of the {len(spec.gpus)} gpus, or none"
        )
    for a, row in enumerate(rows):
        field = f"pcie.levels[{a}]"
        if len(row) != len(rows):
            raise InvalidTopology(
                field, f"has {len(row)} {'word' if len(row) == 1 else 'words'}; must have {len(rows)}, one for each GPU"
            )
        for b, word in enumerate(row):
            allowed = (ITSELF,) if a == b else LEVELS
            if word not in allowed:
                raise InvalidTopology(field, f"word {b} is {word!r}; must be {_one_of(allowed)}")
    for a, row in enumerate(rows):
        for b in range(a):
            if row[b] != rows[b][a]:
                raise InvalidTopology(
                    f"pcie.levels[{a}]",
                    f"is {row[b]} to GPU {b}, but pcie.levels[{b}] is {rows[b][a]} back; both must be the same",
                )


def _check_words(field: str, words: Sequence[str], count: int) -> None:
    if words and len(words) != count:
        raise InvalidTopology(field, f"has {len(words)} entries; must have one for each of the {count} gpus, or none")
    for number, word in enumerate(words):
        if word not in LEVELS:
            raise InvalidTopology(f"{field}[{number}]", f"is {word!r}; must be {_one_of(LEVELS)}")


def _one_of(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" or {words[-1]}"
