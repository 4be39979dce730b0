"""The few SVG elements that machines are drawn with. Lengths are pixels; text is text, so that it can be searched."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import cos, sin

from closeknit.api.text.printable import printable
from closeknit.cli.topology.machine_sheet import GpuLine, NicLine

GPU_WIDTH, GPU_HEIGHT = 80, 44
NIC_WIDTH, NIC_HEIGHT = 88, 34

# Colours of their own for dark grounds; programs that do not know about those draw the light ones.
STYLE = """
.ground { fill: #ffffff; }
text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #1f2937; text-anchor: middle; }
.start { text-anchor: start; } .title { font-size: 16px; font-weight: 600; } .strong { font-weight: 600; }
.small { font-size: 11px; } .faint { fill: #6b7280; } .bad { fill: #dc2626; } .group { fill: #f3f4f6; }
.arc { fill: none; stroke: #f3f4f6; stroke-width: 108; }
.gpu { fill: #ecfdf5; stroke: #059669; stroke-width: 1.5; } .nic { fill: #fff7ed; stroke: #d97706; stroke-width: 1.5; }
.hurt { stroke: #dc2626; stroke-width: 2.5; }
.out { fill: #ffffff; stroke: #dc2626; stroke-width: 2; stroke-dasharray: 5 4; }
.switch { fill: #dbeafe; stroke: #2563eb; stroke-width: 1.5; }
.link { stroke: #2563eb; opacity: 0.8; } .disc { fill: #ffffff; }
.pcie { stroke: #d97706; stroke-width: 1.5; fill: none; }
@media (prefers-color-scheme: dark) {
.ground { fill: #111827; } text { fill: #e5e7eb; } .faint { fill: #9ca3af; } .bad { fill: #f87171; }
.group { fill: #1f2937; } .arc { stroke: #1f2937; } .gpu { fill: #064e3b; stroke: #34d399; }
.nic { fill: #451a03; stroke: #fbbf24; } .hurt { stroke: #f87171; } .out { fill: #111827; stroke: #f87171; }
.switch { fill: #1e3a8a; stroke: #60a5fa; } .link { stroke: #60a5fa; }
.disc { fill: #111827; } .pcie { stroke: #fbbf24; }
}
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """SVG elements from 0, 0 on, and how much room they take, in pixels."""

    width: float
    height: float
    elements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A place in the picture."""

    x: float
    y: float

    def at(self, angle: float, across: float, down: float) -> "Point":
        """The place that far from here, on an ellipse; angles run clockwise from the right."""
        return Point(self.x + across * cos(angle), self.y + down * sin(angle))

    def towards(self, other: "Point", part: float) -> "Point":
        """The place at this part of the way to the other."""
        return Point(self.x + (other.x - self.x) * part, self.y + (other.y - self.y) * part)


def text(place: Point, words: str, style: str = "") -> str:
    """Words in the middle of a place; of the user's files, so that they are made safe."""
    return f'<text x="{place.x:.1f}" y="{place.y + 4.5:.1f}" class="{style}">{escape(printable(words))}</text>'


def box(place: Point, width: float, height: float, style: str) -> str:
    """A rounded box around a place."""
    x, y = place.x - width / 2, place.y - height / 2
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="7" class="{style}"/>'


def line(begin: Point, end: Point, style: str, width: float | None = None) -> str:
    """A straight line, of its style's width or its own."""
    thick = f' stroke-width="{width:.1f}"' if width is not None else ""
    return f'<path d="M{begin.x:.1f} {begin.y:.1f} L{end.x:.1f} {end.y:.1f}" class="{style}"{thick}/>'


def link_width(links: int) -> float:
    """How thick so many links are drawn: each one more shows, as long as there are few."""
    return 1 + min(links, 10) * 0.8


def count(place: Point, links: int) -> str:
    """A number on a line."""
    disc = f'<circle cx="{place.x:.1f}" cy="{place.y:.1f}" r="9" class="disc"/>'
    return disc + text(place, str(links), "small")


def gpu_box(gpu: GpuLine, place: Point) -> str:
    """A GPU: its index, and below it its NUMA node, or what is wrong with it."""
    style = "out" if gpu.is_out else "gpu hurt" if gpu.state else "gpu"
    below, colour = (gpu.brief, "small bad") if gpu.state else (_numa(gpu), "small faint")
    return (
        box(place, GPU_WIDTH, GPU_HEIGHT, style)
        + text(Point(place.x, place.y - 8), f"GPU{gpu.index}", "strong")
        + text(Point(place.x, place.y + 10), below, colour)
    )


def nic_box(nic: NicLine, place: Point) -> str:
    """A NIC: its name, and below it how near it is."""
    below, colour = ("down", "small bad") if nic.is_down else (nic.nearest, "small faint")
    return (
        box(place, NIC_WIDTH, NIC_HEIGHT, "out" if nic.is_down else "nic")
        + text(Point(place.x, place.y - 7), _short(nic.name), "small")
        + text(Point(place.x, place.y + 7), below, colour)
    )


def runs(values: Sequence[str]) -> list[tuple[int, int]]:
    """First and last position of each run of equal values."""
    found: list[tuple[int, int]] = []
    for at, value in enumerate(values):
        if found and values[found[-1][1]] == value:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found


def _numa(gpu: GpuLine) -> str:
    return "" if gpu.numa == "-" else f"NUMA {gpu.numa}"


def _short(name: str, most: int = 13) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
