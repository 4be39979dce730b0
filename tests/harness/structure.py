"""`python -m harness.structure` writes docs/structure.svg: the packages as rooms, what each may import as arrows.

Arrows of today are the layer contracts of pyproject.toml; a room that the contracts gain has to be given a place here.
What was before issue 1b stands still: it is commit 3294a8d.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "structure.svg"
PURE, SHELL, WAY = "#ecfdf5", "#fff7ed", "#2563eb"
INK, FAINT, LINE = "#1f2937", "#4b5563", "#94a3b8"
LEGEND = "green: pure · orange: talks to the world · an arrow: may import, and all below it"
HEIGHT = 56
PANEL_WIDTH = 540


@dataclass(frozen=True, slots=True)
class Room:
    """A package: where it is drawn, and which stops of a job's `gpus` are in it."""

    x: int
    floor: int  # 0 is the top
    width: int
    is_pure: bool
    stops: tuple[int, ...] = ()
    inside: str = ""  # a pure room within a shell

    @property
    def y(self) -> int:
        return 84 + 86 * self.floor

    def stop(self, number: int) -> tuple[int, int]:
        """Where a stop is drawn."""
        place = len(self.stops) - 1 - self.stops.index(number)
        return self.x + self.width - 16 - 22 * place, self.y + 40


@dataclass(frozen=True, slots=True)
class House:
    """One structure: its rooms, and who may import whom; arrows that others imply are left out."""

    title: str
    rooms: Mapping[str, Room]
    arrows: Mapping[tuple[str, str], tuple[int, int]]
    """(who, whom) -> x of the arrow at its start and at its end."""
    way: Sequence[str]
    """What each stop is, in order."""

    def room_of(self, stop: int) -> tuple[str, Room]:
        """The one room, with its name, that a stop is in."""
        (found,) = ((name, room) for name, room in self.rooms.items() if stop in room.stops)
        return found


ROOMS = {
    "controller": Room(0, 0, 200, False, (7,)),
    "cli": Room(215, 0, 50, False),
    "client": Room(273, 0, 62, False),
    "agent": Room(350, 0, 170, False, inside="discovery"),
    "webmap": Room(0, 1, 215, True),
    "scheduling": Room(0, 2, 215, True, (4,)),
    "simulation": Room(225, 2, 97, True),
    "lifecycle": Room(0, 3, 215, True, (5,)),
    "placement": Room(0, 4, 105, True, (3,)),
    "launch": Room(115, 4, 100, True, (6,)),
    "runtime": Room(350, 3, 170, False),
    "cluster": Room(0, 5, 215, True, (2,)),
    "kube": Room(350, 4, 170, False, (1,)),
    "machine": Room(0, 6, 215, True),
    "sidecar": Room(446, 6, 74, False),
    "api": Room(0, 7, 520, True),
}
ENDS = {
    ("controller", "webmap"): (100, 100),
    ("webmap", "scheduling"): (100, 100),
    ("controller", "runtime"): (198, 360),
    ("cli", "webmap"): (225, 205),
    ("cli", "simulation"): (245, 250),
    ("cli", "runtime"): (260, 390),
    ("agent", "runtime"): (470, 470),
    ("agent", "machine"): (355, 207),
    ("scheduling", "lifecycle"): (100, 100),
    ("lifecycle", "placement"): (55, 55),
    ("lifecycle", "launch"): (165, 165),
    ("placement", "cluster"): (55, 55),
    ("launch", "cluster"): (165, 165),
    ("cluster", "machine"): (115, 115),
    ("machine", "api"): (115, 115),
    ("runtime", "kube"): (435, 435),
    ("kube", "api"): (435, 435),
}
STOPS = (
    "read by the watch",
    "decoded once: the job's spec",
    "its request, and the placement found for it",
    "the verdict on it",
    "what is to be written: the booking",
    "its gang: a Pod for each share",
    "written, as the plan says",
)


def allowed() -> set[tuple[str, str]]:
    """Who may import whom by the layer contracts, nearest layers alone: (package, package)."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    pairs: set[tuple[str, str]] = set()
    for contract in contracts:
        if contract["type"] != "layers" or "containers" in contract:
            continue
        layers = [[name.strip().removeprefix("closeknit.") for name in row.split("|")] for row in contract["layers"]]
        pairs |= {(a, b) for above, below in pairwise(layers) for a in above for b in below}
    return pairs


def now() -> House:
    """Today's house. Raises KeyError for an arrow that was given no place."""
    return House("The packages of closeknit", ROOMS, {pair: ENDS[pair] for pair in sorted(allowed())}, STOPS)


def text() -> str:
    """The picture."""
    label = "The packages of closeknit as rooms, with the way of a job's gpus from CRD to Pod"
    width = PANEL_WIDTH + 40
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 1046" role="img" aria-label="{label}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="14">',
            f'<rect width="{width}" height="1046" fill="#ffffff"/>',
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" orient="auto" '
            f'markerWidth="8" markerHeight="8"><path d="M0,0 L8,4 L0,8 z" fill="{LINE}"/></marker></defs>',
            *_house(now(), 30),
            _text(30, 1032, LEGEND, FAINT, 13),
            "</svg>",
            "",
        ]
    )


def _house(house: House, left: int) -> list[str]:
    lines = [f'<g transform="translate({left},0)">', _text(0, 40, house.title, INK, 17, bold=True)]
    rooms = sum(1 for room in house.rooms.values() if room.stops)
    stops = len(house.way)
    lines.append(_text(0, 62, f"a job's gpus, from CRD to Pod: {stops} stops in {rooms} rooms", WAY))
    for (who, whom), (start, end) in house.arrows.items():
        top, bottom = house.rooms[who].y + HEIGHT, house.rooms[whom].y - 2
        lines.append(
            f'<line x1="{start}" y1="{top}" x2="{end}" y2="{bottom}" stroke="{LINE}" stroke-width="1.5" '
            'marker-end="url(#head)"/>'
        )
    for name, room in house.rooms.items():
        lines += _room(name, room)
    places = [house.room_of(number)[1].stop(number) for number in range(1, stops + 1)]
    points = " ".join(f"{x},{y}" for x, y in places)
    lines.append(f'<polyline points="{points}" fill="none" stroke="{WAY}" stroke-width="2" stroke-opacity="0.35"/>')
    lines += [_stop(x, y, number) for number, (x, y) in enumerate(places, 1)]
    for number, what in enumerate(house.way, 1):
        name, _ = house.room_of(number)
        y = 776 + 20 * number
        lines += [_stop(10, y - 5, number), _text(28, y, name, INK, bold=True), _text(120, y, what, FAINT)]
    return [*lines, "</g>"]


def _room(name: str, room: Room) -> list[str]:
    paint = f'fill="{PURE if room.is_pure else SHELL}" stroke="{LINE}"'
    lines = [
        f'<rect x="{room.x}" y="{room.y}" width="{room.width}" height="{HEIGHT}" rx="6" {paint}/>',
        _text(room.x + 12, room.y + 23, name, INK, 15, bold=True),
    ]
    if room.inside:
        x = room.x + room.width - 94
        lines.append(f'<rect x="{x}" y="{room.y + 14}" width="84" height="28" rx="5" fill="{PURE}" stroke="{LINE}"/>')
        lines.append(_text(x + 10, room.y + 33, room.inside, INK))
    return lines


def _stop(x: int, y: int, number: int) -> str:
    return (
        f'<circle cx="{x}" cy="{y}" r="10" fill="{WAY}"/>'
        f'<text x="{x}" y="{y + 4}" font-size="11" font-weight="bold" fill="#ffffff" text-anchor="middle">'
        f"{number}</text>"
    )


def _text(x: int, y: int, words: str, fill: str, size: int = 14, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}"{weight} fill="{fill}">{words}</text>'


if __name__ == "__main__":
    FILE.write_text(text())
