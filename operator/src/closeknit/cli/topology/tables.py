"""Machines as tables for people."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from closeknit.api.printable import printable
from closeknit.cli.topology.sheet import Sheet

# As wide as 64 GPUs: a terminal's user would rather have long lines than cut-off words, as from nvidia-smi itself.
_WIDTH = 600


def print_sheet(sheet: Sheet) -> None:
    """One machine: summary, matrix, islands, notes."""
    console = Console(width=_WIDTH)
    console.print(_text(f"{sheet.name}: ", "bold") + _text(sheet.summary))
    if sheet.gpus:
        console.print(_matrix(sheet))
        console.print(_text(sheet.island_words))
    for note in sheet.notes:
        console.print(_text(f"- {note}"))


def print_sheets(sheets: Sequence[Sheet]) -> None:
    """One line for each machine."""
    table = _table("NODE", "GPUS", "NVLINK ISLANDS", "NICS", "OUT OF USE")
    for sheet in sheets:
        gpus, _, _ = sheet.summary.partition(";")
        sizes = "-".join(str(len(island)) for island in sheet.islands) or "-"
        out = ", ".join(
            [f"GPU{gpu.index}" for gpu in sheet.gpus if gpu.is_out] + [nic.name for nic in sheet.nics if nic.is_down]
        )
        table.add_row(*map(_text, (sheet.name, gpus, sizes, str(len(sheet.nics) or "-"), out or "-")))
    Console(width=_WIDTH).print(table)


def _matrix(sheet: Sheet) -> Table:
    names = [f"GPU{gpu.index}" for gpu in sheet.gpus]
    table = _table("", *names, "NUMA", "STATE")
    for name, gpu, words in zip(names, sheet.gpus, sheet.words, strict=True):
        style = "red" if gpu.is_out else "yellow" if gpu.state else ""
        table.add_row(name, *words, gpu.numa, _text(gpu.state, style), style="dim" if gpu.is_out else "")
    for nic in sheet.nics:
        table.add_row(_text(nic.name), *nic.levels, nic.numa, _text(nic.facts, "red" if nic.is_down else ""))
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _text(words: str, style: str = "") -> Text:
    """Of the user's files: rich has markup, and terminals have codes of their own."""
    return Text(printable(words), style=style)
