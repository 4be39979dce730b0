"""The picture of a replay: allocation, waiting jobs and fragmentation over time, as SVG for light and dark grounds."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from closeknit.api.text.printable import printable
from closeknit.cli.simulate.simulation_table import time
from closeknit.simulation.account import ReplayAccount

LEFT, WIDTH, HEIGHT, GAP = 70, 620, 120, 62  # pixels of a panel
STYLE = """
.ground { fill: #ffffff; } text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #1f2937; }
.title { font-weight: 600; } .faint { fill: #6b7280; } .end { text-anchor: end; } .axis { stroke: #cbd5e1; }
.line { fill: none; stroke-width: 1.5; } .c0 { stroke: #2563eb; } .c1 { stroke: #d97706; } .c2 { stroke: #059669; }
.c3 { stroke: #7c3aed; } .c4 { stroke: #dc2626; } .c5 { stroke: #64748b; }
@media (prefers-color-scheme: dark) {
.ground { fill: #111827; } text { fill: #e5e7eb; } .faint { fill: #9ca3af; } .axis { stroke: #374151; }
.c0 { stroke: #60a5fa; } .c1 { stroke: #fbbf24; } .c2 { stroke: #34d399; } .c3 { stroke: #a78bfa; }
.c4 { stroke: #f87171; } .c5 { stroke: #94a3b8; }
}
"""
_COLOURS = 6


class _Line(NamedTuple):
    """One quantity over the samples."""

    name: str
    values: Sequence[float]


def plot(account: ReplayAccount) -> str:
    """The whole picture."""
    samples = account.samples
    times = [sample.at_s for sample in samples]
    levels = list(samples[0].free.largest_inside)
    panels = [
        (
            "GPUs",
            [
                _Line("allocated", [sample.allocated_gpus for sample in samples]),
                _Line("free", [sample.free.free_gpus for sample in samples]),
                _Line("free on partly used nodes", [sample.free.broken_gpus for sample in samples]),
            ],
        ),
        ("Jobs that wait", [_Line("", [sample.waiting_jobs for sample in samples])]),
        (
            "GPUs of the largest gang that would fit",
            [_Line("anywhere", [sample.free.largest_gang for sample in samples])]
            + [_Line(f"in one {level}", [sample.free.largest_inside[level] for sample in samples]) for level in levels],
        ),
    ]
    parts, y = [], 30.0
    for title, lines in panels:
        parts += _panel(title, lines, times, y)
        y += HEIGHT + GAP
    size = f'width="{LEFT + WIDTH + 20}" height="{y:.0f}" viewBox="0 0 {LEFT + WIDTH + 20} {y:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<style>{STYLE}</style>'
    return "\n".join([head, '<rect width="100%" height="100%" class="ground"/>', *parts, "</svg>\n"])


def _panel(title: str, lines: Sequence[_Line], times: Sequence[float], y: float) -> list[str]:
    top = max((max(line.values) for line in lines), default=0.0) or 1.0
    last = times[-1] or 1.0
    parts = [f'<text x="{LEFT}" y="{y - 10:.0f}" class="title">{escape(title)}</text>']
    bottom = y + HEIGHT
    for value, height in ((top, y), (0.0, bottom)):
        parts.append(f'<path d="M{LEFT} {height:.1f} H{LEFT + WIDTH}" class="axis"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{height + 4:.1f}" class="faint end">{value:,.0f}</text>')
    parts.append(f'<text x="{LEFT}" y="{bottom + 16:.1f}" class="faint">time 0</text>')
    parts.append(f'<text x="{LEFT + WIDTH}" y="{bottom + 16:.1f}" class="faint end">{time(times[-1])}</text>')
    x = LEFT + 60.0
    for number, line in enumerate(lines):
        colour = f"c{number % _COLOURS}"
        points = [
            f"{LEFT + at / last * WIDTH:.1f} {bottom - value / top * HEIGHT:.1f}"
            for at, value in zip(times, line.values, strict=True)
        ]
        parts.append(f'<path d="M{" L".join(points)}" class="line {colour}"/>')
        if line.name:
            name = printable(line.name)
            parts.append(f'<path d="M{x:.0f} {bottom + 12:.1f} h14" class="line {colour}"/>')
            parts.append(f'<text x="{x + 19:.0f}" y="{bottom + 16:.1f}">{escape(name)}</text>')
            x += 35 + 7 * len(name)
    return parts
