"""Machines as tables for people."""

from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from closeknit.api.text.printable import printable
from closeknit.cli.topology.gpu_activity import GpuActivity
from closeknit.cli.topology.machine_sheet import GpuLine, MachineSheet

# As wide as 64 GPUs: a terminal's user would rather have long lines than cut-off words, as from nvidia-smi itself.
WIDTH = 600
DOING = ("BUSY", "MEMORY", "HEAT", "POWER")  # of each GPU at a moment


def print_sheet(sheet: MachineSheet) -> None:
    """One machine: summary, matrix, islands, notes."""
    Console(width=WIDTH).print(page(sheet))


def page(sheet: MachineSheet, moments: Mapping[int, GpuActivity] | None = None) -> Group:
    """The same to be shown, with what its GPUs do where that is known, by NVML index."""
    parts: list[Text | Table] = [_text(f"{sheet.name}: ", "bold") + _text(sheet.summary)]
    if sheet.gpus:
        parts += [_matrix(sheet, moments), _text(sheet.island_words)]
    return Group(*parts, *(_text(f"- {note}") for note in sheet.notes))


def on_screen(sheet: MachineSheet, moments: Mapping[int, GpuActivity], console: Console) -> Group:
    """As `page`; without the matrix and the NICs, which do not move, where the console is too small for whole words."""
    whole, matrix = page(sheet, moments), _matrix(sheet, moments)
    wide = console.measure(matrix, options=console.options.update(width=WIDTH)).maximum
    if wide <= console.width and len(console.render_lines(whole)) <= console.height:
        return whole
    heading = _text(f"{sheet.name}: ", "bold") + _text(sheet.summary)
    return Group(heading, _doing(sheet, moments), _text("- the matrix needs a larger screen, or no --live"))


def print_sheets(sheets: Sequence[MachineSheet], refused: Sequence[str]) -> None:
    """One line for each machine, and what keeps others from being shown."""
    table = _table("NODE", "GPUS", "NVLINK ISLANDS", "NICS", "OUT OF USE")
    for sheet in sheets:
        gpus, _, _ = sheet.summary.partition(";")
        sizes = "-".join(str(len(island)) for island in sheet.islands) or "-"
        out = ", ".join(
            [f"GPU{gpu.index}" for gpu in sheet.gpus if gpu.is_out] + [nic.name for nic in sheet.nics if nic.is_down]
        )
        table.add_row(*map(_text, (sheet.name, gpus, sizes, str(len(sheet.nics) or "-"), out or "-")))
    Console(width=WIDTH).print(table, *(_text(f"- {words}") for words in refused), sep="\n")


def _matrix(sheet: MachineSheet, moments: Mapping[int, GpuActivity] | None) -> Table:
    names = [f"GPU{gpu.index}" for gpu in sheet.gpus]
    doing = () if moments is None else DOING
    table = _table("", *names, "NUMA", *doing, "STATE")
    for name, gpu, words in zip(names, sheet.gpus, sheet.words, strict=True):
        live = () if moments is None else _live(moments.get(gpu.index, GpuActivity()))
        table.add_row(name, *words, gpu.numa, *live, _state(gpu), style="dim" if gpu.is_out else "")
    for nic in sheet.nics:
        facts = _text(nic.facts, "red" if nic.is_down else "")
        table.add_row(_text(nic.name), *nic.levels, nic.numa, *[""] * len(doing), facts)
    return table


def _doing(sheet: MachineSheet, moments: Mapping[int, GpuActivity]) -> Table:
    """What moves alone: a line for each GPU."""
    table = _table("", *DOING, "STATE")
    table.columns[-1].no_wrap = False  # many reasons may be longer than what is left of the screen
    for gpu in sheet.gpus:
        live = _live(moments.get(gpu.index, GpuActivity()))
        table.add_row(f"GPU{gpu.index}", *live, _state(gpu), style="dim" if gpu.is_out else "")
    return table


def _state(gpu: GpuLine) -> Text:
    return _text(gpu.state, "red" if gpu.is_out else "yellow" if gpu.state else "")


def _live(moment: GpuActivity) -> tuple[str, ...]:
    values = (
        (moment.utilization_ratio, 100, "%"),
        (moment.memory_used_bytes, 2**-30, " GiB"),
        (moment.temperature_celsius, 1, " °C"),
        (moment.power_watts, 1, " W"),
    )
    return tuple("-" if value is None else f"{value * scale:.0f}{unit}" for value, scale, unit in values)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _text(words: str, style: str = "") -> Text:
    """Of the user's files: rich has markup, and terminals have codes of their own."""
    return Text(printable(words), style=style)
