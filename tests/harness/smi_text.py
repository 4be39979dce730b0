"""What `nvidia-smi topo -m` would print on a machine, and what becomes of it on the way into an issue."""

import re
from collections.abc import Callable
from dataclasses import replace

from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.api.objects import NodeTopology, ObjectMeta
from closeknit.cli.topology.machine_sheet import sheet

Way = Callable[[str], str]

LEGEND = """
Legend:

  X    = Self
  SYS  = farther than the host bridges of one NUMA node
  PIX  = at most one PCIe bridge
  NV#  = so many NVLinks
"""


def topo(spec: NodeTopologySpec, status: NodeTopologyStatus, *, command: str = "-m", numbers_nics: bool = True) -> str:
    """The table with tabs, its legend, and the names of the NICs; `-mp` shows PCIe levels alone."""
    shown = sheet(NodeTopology(metadata=ObjectMeta(name="n"), spec=spec, status=status))
    gpus = [f"GPU{gpu.index}" for gpu in shown.gpus]
    nics = [f"NIC{number}" if numbers_nics else nic.name for number, nic in enumerate(shown.nics)]
    lines = ["\t" + "\t".join([*gpus, *nics, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    levels = [row.split() for row in spec.pcie.levels]
    # It knows nothing of Data Direct: such a NIC is on a root of its own.
    is_direct = [nic.data_direct_address is not None for nic in spec.nics or ()]
    printed = [
        replace(nic, levels=tuple(between(nic.numa, gpu.numa) for gpu in shown.gpus)) if direct else nic
        for nic, direct in zip(shown.nics, is_direct, strict=True)
    ]
    for row, gpu in enumerate(shown.gpus):
        words = [cell(word if command == "-m" else levels[row][column]) for column, word in enumerate(shown.words[row])]
        numa = "N/A" if gpu.numa == "-" else gpu.numa
        words += [nic.levels[row] for nic in printed]
        lines.append("\t".join([gpus[row], *words, "0-23,48-71", numa, "", "N/A"]))
    for row, nic in enumerate(printed):
        others = [between(nic.numa, other.numa) for other in printed]
        lines.append(
            "\t".join([nics[row], *nic.levels, *(cell("X") if row == at else word for at, word in enumerate(others))])
        )
    if numbers_nics and nics:
        legend = "\nNIC Legend:\n\n" + "".join(f"  NIC{n}: {nic.name}\n" for n, nic in enumerate(shown.nics))
    else:
        legend = ""
    return "\n".join(lines) + "\n" + LEGEND + legend


def cell(word: str) -> str:
    return " X " if word == "X" else "N/A" if word == "-" else word


def between(numa: str, other: str) -> str:
    return "NODE" if numa == other != "-" else "SYS"


def listed(spec: NodeTopologySpec) -> str:
    """As `nvidia-smi -L`."""
    return "".join(
        f"GPU {gpu.index}: {(gpu.product or '').replace('-', ' ', 1)} (UUID: {gpu.uuid})\n" for gpu in spec.gpus
    )


def windows(text: str) -> str:
    return text.replace("\n", "\r\n")


def coloured(text: str) -> str:
    return re.sub(r"^\t(.*)$", "\t\x1b[4m\\1\x1b[0m", text, count=1, flags=re.MULTILINE)


def half_coloured(text: str) -> str:
    """The escape characters got lost."""
    return coloured(text).replace("\x1b", "")


def browser(text: str) -> str:
    """Tabs as spaces, some of which do not break, and the first line's are gone."""
    return text.expandtabs(8).replace("  ", " \u00a0").lstrip()


def double_spaced(text: str) -> str:
    return text.replace("\n", "\n\n")


def quoted(text: str) -> str:
    return re.sub(r"^", "> ", text, flags=re.MULTILINE)


def logged(text: str) -> str:
    return re.sub(r"^", "2026-11-22T09:00:00.123Z node-7 stdout F ", text, flags=re.MULTILINE)


def in_conversation(text: str) -> str:
    before = "Hi, GPU0 is slow here, see below.\n\n```\nroot@node-7:~# nvidia-smi topo -m\n"
    return f"{before}{text}```\n\nThanks! (GPU3 is fine)\n"


def old(text: str) -> str:
    return text.replace("SYS\t", "SOC\t")


def wrapped(text: str) -> str:
    """A terminal of 60 columns broke the lines between cells."""
    lines = []
    for line in text.expandtabs(8).split("\n"):
        rest = line
        while len(rest) > 60 and rest[:60].strip():
            at = rest.rfind(" ", 0, 60)
            lines.append(rest[:at])
            rest = rest[at:].lstrip()
        lines.append(rest)
    return "\n".join(lines)


def piped(text: str) -> str:
    """As a table in Markdown."""
    head, *rows = [f"| {line.replace(chr(9), ' | ')} |" for line in text.partition("\n\n")[0].split("\n")]
    return "\n".join([head, "|" + "---|" * head.count("|"), *rows, text.partition("\n\n")[2]])


def glued(text: str) -> str:
    """Tabs between the cells and between the names of devices got lost."""
    text = re.sub(r"\t(?=NV\d|PIX|PXB|PHB|NODE|SYS| X )", "", text)
    return re.sub(r"(?<=\d)\t(?=GPU\d|NIC\d|mlx5|CPU)", "", text)
