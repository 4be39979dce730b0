"""A benchmark's table and picture in docs/benchmarks.md: each writes the section between its own two marks."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "benchmarks.md"
BEGINNING = (
    "# Benchmarks\n\nEach section is written by the command it names; do not edit. [Who the peers are](peers.md).\n"
)
COLOURS = ("#1f6feb", "#8c959f", "#bf8700", "#8250df", "#cf222e", "#1a7f37")
FAINT = "#57606a"
BAR, GAP, LEFT, WIDTH = 14, 18, 190, 560  # pixels


class Bars:
    """Groups of bars from 0 to 1."""

    def __init__(self, title: str, *, across: str, down: str) -> None:
        """`across` is what the length of a bar says and which of two is better, `down` what a group is."""
        self.title = title
        self.across = across
        self.down = down
        self.groups: list[tuple[str, Mapping[str, float]]] = []

    def add(self, group: str, values: Mapping[str, float]) -> None:
        """One group, its bars from the top down."""
        self.groups.append((group, values))

    def svg(self) -> str:
        """The picture."""
        names = list(dict.fromkeys(name for _, values in self.groups for name in values))
        colour = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
        bars, y = [], 58
        for group, values in self.groups:
            bars.append(f'<text x="8" y="{y + BAR - 3}">{escape(group)}</text>')
            for name, value in values.items():
                long = round(value * (WIDTH - LEFT))
                bars.append(f'<rect x="{LEFT}" y="{y}" width="{long}" height="{BAR - 2}" fill="{colour[name]}"/>')
                bars.append(f'<text x="{LEFT + long + 6}" y="{y + BAR - 3}">{value:.3f} {escape(name)}</text>')
                y += BAR
            y += GAP
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 240}" height="{y + 40}"'
        parts = [
            '<rect width="100%" height="100%" fill="#fff"/>',
            f'<text x="8" y="20" font-weight="bold">{escape(self.title)}</text>',
            f'<text x="8" y="42" fill="{FAINT}">{escape(self.down)}</text>',
            *self._axis(y),
            *bars,
        ]
        return "\n".join([f'{head} font-family="sans-serif" font-size="11">', *parts, "</svg>\n"])

    def _axis(self, y: int) -> Iterator[str]:
        for value in (0, 0.5, 1):
            x = LEFT + round(value * (WIDTH - LEFT))
            yield f'<path d="M{x} 50 V{y}" stroke="#d0d7de"/>'
            yield f'<text x="{x}" y="{y + 13}" text-anchor="middle" fill="{FAINT}">{value:g}</text>'
        middle = (LEFT + WIDTH) // 2
        yield f'<text x="{middle}" y="{y + 29}" text-anchor="middle" fill="{FAINT}">{escape(self.across)}</text>'


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of Markdown; numbers have three places."""
    lines = [header, ["---"] * len(header), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: object) -> str:
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def write(section: str, title: str, text: str, bars: Bars) -> None:
    """Writes one section of docs/benchmarks.md and its picture; the others stay."""
    picture = DOCS / "pictures" / f"bench-{section}.svg"
    picture.write_text(bars.svg())
    begin, end = f"<!-- {section}: make bench-{section} -->", f"<!-- end of {section} -->"
    whole = f"{begin}\n## {title}\n\n{text}\n\n![{title}](pictures/{picture.name})\n{end}\n"
    page = PAGE.read_text() if PAGE.exists() else BEGINNING
    before, mark, rest = page.partition(begin)
    after = rest.partition(f"{end}\n")[2] if mark else ""
    PAGE.write_text(before + whole + after if mark else f"{page}\n{whole}")
