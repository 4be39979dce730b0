"""GPUs in rows: with NVSwitches in a bar that all reach, or without any NVLink."""

from collections.abc import Sequence

from closeknit.cli.topology.machine_sheet import MachineSheet, NicLine
from closeknit.cli.topology.shapes import (
    GPU_HEIGHT,
    GPU_WIDTH,
    NIC_HEIGHT,
    NIC_WIDTH,
    Picture,
    Point,
    box,
    count,
    gpu_box,
    line,
    link_width,
    nic_box,
    runs,
    text,
)

_PER_ROW = 8
_STEP = 100  # from one GPU to the next
_BAR_HEIGHT = 40
_LINK_LENGTH = 62
_NIC_GAP = 30
_PAD = 12
_GROUP_PADS = {"PIX": 4, "PXB": 8}  # of the outline around GPUs below the same PCIe switches


def rows(sheet: MachineSheet) -> Picture:
    """The picture of such a machine: rows from above, the second one below the bar of switches."""
    positions = [range(begin, min(begin + _PER_ROW, len(sheet.gpus))) for begin in range(0, len(sheet.gpus), _PER_ROW)]
    elements: list[str] = []
    y = 0.0
    width = max((len(row) for row in positions), default=0) * _STEP + 2 * _PAD
    for number, row in enumerate(positions):
        is_below = sheet.is_switched and number == 1
        if is_below:
            y += _LINK_LENGTH
        part = _Row(sheet, row, y, is_below=is_below)
        elements += part.elements()
        y = part.bottom
        if not sheet.is_switched:
            y += 2 * _PAD
        elif number == 0:
            y += _LINK_LENGTH
            bar = Point(width / 2, y + _BAR_HEIGHT / 2)
            elements += part.links(y)
            elements += [box(bar, width - 2 * _PAD, _BAR_HEIGHT, "switch"), text(bar, "NVSwitch", "strong")]
            y += _BAR_HEIGHT
        elif is_below:
            elements += part.links(part.top - _LINK_LENGTH)
    return Picture(width, y + _PAD, tuple(elements))


class _Row:
    """One row of GPUs, their NICs above or below them."""

    def __init__(self, sheet: MachineSheet, positions: Sequence[int], y: float, *, is_below: bool) -> None:
        self._sheet = sheet
        self._positions = positions
        mine = set(positions)
        self._nics = [nic for nic in sheet.nics if nic.beside and nic.beside[0] in mine]
        self._floors = _floors([(self._x(nic), nic) for nic in self._nics])
        depth = (max(self._floors.values(), default=-1) + 1) * (NIC_HEIGHT + 8)
        depth += _NIC_GAP if self._nics else 0
        self.top = y
        self._y = y + _PAD + GPU_HEIGHT / 2 + (0 if is_below else depth)
        self._away = 1 if is_below else -1
        self.bottom = y + 2 * _PAD + GPU_HEIGHT + depth

    def elements(self) -> list[str]:
        """From the back to the front: NUMA nodes, PCIe switches, lines, NICs, GPUs."""
        sheet = self._sheet
        numa = [sheet.gpus[position].numa for position in self._positions]
        behind = []
        for first, last in runs(numa):
            if numa[first] != "-":
                middle = (self._place(self._positions[first]).x + self._place(self._positions[last]).x) / 2
                width = (last - first + 1) * _STEP - 8
                behind.append(box(Point(middle, (self.top + self.bottom) / 2), width, self.bottom - self.top, "group"))
        for level, group in sheet.pcie_groups:
            mine = [position for position in group if position in self._positions]
            if mine and mine[-1] - mine[0] == len(mine) - 1:
                centre = self._place(mine[0]).towards(self._place(mine[-1]), 0.5)
                pad = _GROUP_PADS[level]
                width = (len(mine) - 1) * _STEP + GPU_WIDTH + 2 * pad
                behind.append(box(centre, width, GPU_HEIGHT + 2 * pad, "pcie"))
        lines, boxes = [], []
        for nic in self._nics:
            place = Point(self._x(nic), self._nic_y(self._floors[nic.name]))
            mine = [position for position in nic.beside if position in self._positions]
            lines += [line(place, self._place(position), "pcie") for position in mine]
            boxes.append(nic_box(nic, place))
        return behind + lines + boxes + [gpu_box(sheet.gpus[at], self._place(at)) for at in self._positions]

    def links(self, bar: float) -> list[str]:
        """Each GPU's links into the switches, whose bar begins or ends at that height."""
        found = []
        for position in self._positions:
            number = max(self._sheet.links[position], default=0)
            if number:
                begin = self._place(position)
                begin = Point(begin.x, begin.y - self._away * GPU_HEIGHT / 2)
                end = Point(begin.x, bar)
                found += [line(begin, end, "link", link_width(number)), count(begin.towards(end, 0.55), number)]
        return found

    def _place(self, position: int) -> Point:
        return Point(_PAD + (position - self._positions[0] + 0.5) * _STEP, self._y)

    def _x(self, nic: NicLine) -> float:
        mine = [position - self._positions[0] for position in nic.beside if position in self._positions]
        return _PAD + (sum(mine) / len(mine) + 0.5) * _STEP

    def _nic_y(self, floor: int) -> float:
        return self._y + self._away * (GPU_HEIGHT / 2 + _NIC_GAP + NIC_HEIGHT / 2 + floor * (NIC_HEIGHT + 8))


def _floors(nics: Sequence[tuple[float, NicLine]]) -> dict[str, int]:
    """How many NICs each stands above: it takes the lowest floor where it has room."""
    taken: list[list[float]] = []
    found = {}
    for x, nic in nics:
        floor = next(
            (floor for floor, places in enumerate(taken) if all(abs(x - place) >= NIC_WIDTH + 4 for place in places)),
            len(taken),
        )
        taken[floor:] = taken[floor:] or [[]]
        taken[floor].append(x)
        found[nic.name] = floor
    return found
