"""GPUs that are joined directly, on a ring, with their NVLinks across it."""

from itertools import combinations
from math import atan2, cos, pi, sin

from closeknit.cli.topology.machine_sheet import MachineSheet
from closeknit.cli.topology.shapes import (
    GPU_WIDTH,
    NIC_WIDTH,
    Picture,
    Point,
    count,
    gpu_box,
    line,
    link_width,
    nic_box,
    runs,
)

_SPACING = 1.35  # of GPUs along the ring, in widths
_LEAST_RADIUS = 120
_BAND = 54  # half of the width of a NUMA node's band
_MOST_COUNTED = 28  # links of eight GPUs; beyond that numbers lie over each other


def ring(sheet: MachineSheet) -> Picture:
    """The picture of such a machine."""
    number = len(sheet.gpus)
    radius = max(_LEAST_RADIUS + 10 * number, _SPACING * GPU_WIDTH * number / (2 * pi))
    near = [nic for nic in sheet.nics if nic.beside]
    outside = _BAND + (NIC_WIDTH + 30 if near else 12)
    centre = Point(radius + outside, radius + (_BAND + 56 if near else 66))
    angles = [-pi / 2 - pi / number + 2 * pi * position / number for position in range(number)]
    places = [centre.at(angle, radius, radius) for angle in angles]
    shapes = _bands(sheet, centre, radius, angles)
    wired = [(a, b) for a, b in combinations(range(number), 2) if sheet.links[a][b]]
    shapes += [line(places[a], places[b], "link", link_width(sheet.links[a][b])) for a, b in wired]
    boxes = []
    taken: dict[float, int] = {}
    for nic in near:
        beside = [angles[position] for position in nic.beside]
        angle = round(atan2(sum(map(sin, beside)), sum(map(cos, beside))), 3)
        step = taken[angle] = taken.get(angle, -1) + 1
        turned = angle + (step + 1) // 2 * (1 if step % 2 else -1) * (NIC_WIDTH + 6) / (radius + _BAND + 30)
        place = centre.at(turned, radius + _BAND + NIC_WIDTH / 2 + 16, radius + _BAND + 34)
        shapes += [line(place, places[position], "pcie") for position in nic.beside]
        boxes.append(nic_box(nic, place))
    if len(wired) <= _MOST_COUNTED:
        shapes += [count(places[a].towards(places[b], _part(a, b, number)), sheet.links[a][b]) for a, b in wired]
    boxes += [gpu_box(gpu, place) for gpu, place in zip(sheet.gpus, places, strict=True)]
    return Picture(2 * centre.x, 2 * centre.y, tuple(shapes + boxes))


def _part(a: int, b: int, number: int) -> float:
    """Where on a link its number stands: not in the middle, where the links of opposite GPUs meet."""
    return 0.5 if (b - a) % number in (1, number - 1) else 0.38


def _bands(sheet: MachineSheet, centre: Point, radius: float, angles: list[float]) -> list[str]:
    """Behind the GPUs of each NUMA node one band; none where the nodes are unknown."""
    numa = [gpu.numa for gpu in sheet.gpus]
    shapes = []
    half = min(pi / len(angles), (GPU_WIDTH / 2 + 12) / radius)
    for first, last in runs(numa):
        if numa[first] == "-":
            continue
        begin, end = angles[first] - half, angles[last] + half
        a, b = centre.at(begin, radius, radius), centre.at(end, radius, radius)
        large = int(end - begin > pi)
        if last - first + 1 == len(numa):
            shapes.append(f'<circle cx="{centre.x:.1f}" cy="{centre.y:.1f}" r="{radius:.1f}" class="arc"/>')
        else:
            curve = f"A{radius:.1f} {radius:.1f} 0 {large} 1 {b.x:.1f} {b.y:.1f}"
            shapes.append(f'<path d="M{a.x:.1f} {a.y:.1f} {curve}" class="arc"/>')
    return shapes
