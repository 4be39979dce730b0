"""One machine as an SVG picture, readable on light and on dark ground."""

from textwrap import wrap

from closeknit.cli.topology.machine_sheet import MachineSheet
from closeknit.cli.topology.ring import ring
from closeknit.cli.topology.rows import rows
from closeknit.cli.topology.shapes import STYLE, Point, text

_MARGIN = 24
_LINE = 20
_LEAST_WIDTH = 560
_LETTER = 6.6  # pixels of one letter, on average


def drawing(sheet: MachineSheet) -> str:
    """The whole picture: title, machine, and below it in words what a picture cannot say."""
    joined = any(any(row) for row in sheet.links)
    part = ring(sheet) if joined and not sheet.is_switched else rows(sheet)
    width = max(part.width, _LEAST_WIDTH) + 2 * _MARGIN
    letters = int((width - 2 * _MARGIN) / _LETTER)
    y = _MARGIN + _LINE / 2
    elements = [text(Point(_MARGIN, y), sheet.name, "start title")]
    for words in wrap(sheet.summary, letters):
        y += _LINE
        elements.append(text(Point(_MARGIN, y), words, "start faint"))
    y += _LINE
    shift = Point((width - part.width) / 2, y)
    elements.append(f'<g transform="translate({shift.x:.1f} {shift.y:.1f})">{"".join(part.elements)}</g>')
    y += part.height + _LINE
    for note, style in _below(sheet):
        for words in wrap(note, letters) or [""]:
            elements.append(text(Point(_MARGIN, y), words, f"start small {style}"))
            y += _LINE
    height = y + _MARGIN - _LINE / 2
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    body = "\n".join(elements)
    ground = '<rect width="100%" height="100%" class="ground"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<style>{STYLE}</style>'
    return f"{head}\n{ground}\n{body}\n</svg>\n"


def _below(sheet: MachineSheet) -> list[tuple[str, str]]:
    """Lines of text, with their styles."""
    lines = [(f"GPU{gpu.index}: {gpu.state}", "bad") for gpu in sheet.gpus if gpu.state]
    lines += [(f"{nic.name}: {nic.facts}", "bad") for nic in sheet.nics if nic.is_down]
    if any(any(row) for row in sheet.links):
        lines.append((sheet.island_words, ""))
    far = [f"{nic.name} ({nic.nearest})" for nic in sheet.nics if not nic.beside]
    if far:
        lines.append((f"NICs beside no GPU: {', '.join(far)}", ""))
    groups = [f"{','.join(str(sheet.gpus[at].index) for at in group)} ({level})" for level, group in sheet.pcie_groups]
    if groups:
        lines.append((f"GPUs below the same PCIe switches: {' '.join(groups)}", ""))
    facts = dict.fromkeys(nic.facts for nic in sheet.nics if nic.facts and not nic.is_down)
    if len(facts) == 1:
        lines.append((f"NICs: {next(iter(facts))}", ""))
    return lines + [(note, "faint") for note in sheet.notes]
