"""The tables in a pasted text: their names and words, complete and symmetric, and nothing concluded from them yet.

Columns are told by the words in them, never by where they stand: tabs become spaces, get lost, or are eaten by a
terminal that wraps long lines.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from closeknit.api.nodetopology import MAX_GPUS_PER_NODE, MAX_LINKS_PER_GPU, MAX_NICS_PER_NODE
from closeknit.cli.smi.surroundings import what_else
from closeknit.cli.smi.torn import Torn
from closeknit.machine.checks import ITSELF, LEVELS

UNKNOWN = "N/A"
_OLD_WORDS = {"SOC": "SYS"}  # of drivers of 2016 and 2017

_GPU = re.compile(r"GPU\d+")
# Glued names come apart where one of these begins; any other word with a digit in it is a name by itself.
_NAME = re.compile(r"GPU\d+|NIC\d+|mlx\d+_(?:bond_?)?\d+|(?!NV\d)[A-Za-z](?=[\w.-]*\d)[\w.-]*")
# Of the columns after those of devices; cut short where a header is wrapped or was cut off.
_HEADINGS = re.compile(r"CPU(?:\s*Aff[a-z]*)?|NUMA(?:\s*Aff[a-z]*)?|GPU(?!\d)(?:\s*NUMA(?:\s*ID)?)?")
_CELL = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|N/A|X(?![A-Za-z0-9])|X(?=NV\d|PIX|PXB|PHB|NODE|SYS|SOC|N/A)")
_PEER_CELL = re.compile(r"(?:X|OK|CNS|GNS|TNS|NS|DR|U)(?![A-Za-z0-9])")  # of nvidia-smi topo -p2p
_AFFINITY = re.compile(r"(?:[\d,-]+|N/A)(?:\s+(?:[\d,-]+|N/A))*")
_RULED = re.compile(r"[\s:+=>-]*")  # an empty line, quoted or not, or the one below the header of a table in Markdown
_SHOWN_LENGTH = 20
_MOST_STRANGE = 40  # lines among the rows that are none
_MOST_HEADER_LINES = 16  # a terminal wraps 26 NICs into four
MAX_NAME_LENGTH = 63
NO_TABLE = "has no table of nvidia-smi topo -m: a line that names GPU0, GPU1, … and a row for each of them"


@dataclass(frozen=True, slots=True)
class SmiTable:
    """One table. Rows are in the order of `names`; `cells[a][b]` is `cells[b][a]`, and X is where a is b."""

    line: int
    names: tuple[str, ...]
    """GPUs by their number first, then NICs as the header calls them."""
    cells: tuple[tuple[str, ...], ...]
    """X, NV and a number, a PCIe level, or N/A."""
    numa: tuple[str, ...]
    """NUMA affinity as printed; empty where it is not."""

    @property
    def gpu_count(self) -> int:
        """How many of the names are GPUs."""
        return sum(_GPU.fullmatch(name) is not None for name in self.names)


def tables(lines: Sequence[str]) -> list[SmiTable]:
    """Every matrix of `topo -m` or `topo -mp` among the lines, in their order; those of `topo -p2p` are passed over.

    Raises Torn for one that is torn or contradicts itself, and where there is none.
    """
    ruled = [line.replace("|", " ") for line in lines]
    found: list[SmiTable] = []
    peers = at = 0
    while at < len(ruled):
        block = _block(ruled, at)
        if block is None:
            at += 1
        elif block.is_peer or not block.rows:
            peers, at = peers + block.is_peer, block.end
        else:
            found.append(_table(block))
            at = block.end
    if found:
        return found
    if peers:
        raise Torn(
            None, "is what nvidia-smi topo -p2p prints, which tells no distances; give that of nvidia-smi topo -m"
        )
    raise Torn(None, what_else(lines) or NO_TABLE)


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    name: str
    rest: str


@dataclass(frozen=True, slots=True)
class _Block:
    """A header and the rows below it."""

    line: int
    names: tuple[str, ...]
    headings: tuple[str, ...]
    rows: tuple[_Row, ...]
    end: int
    is_peer: bool


def _block(lines: Sequence[str], start: int) -> _Block | None:
    """The header that begins in this line, with its rows; None if none does, and no rows where none follow."""
    text = _header(lines[start])
    if text is None:
        return None
    at = start + 1
    while at < len(lines) and at - start <= _MOST_HEADER_LINES and _goes_on(text, lines[at]):
        text = f"{text} {lines[at]}"
        at += 1
    names = tuple(_names(text))
    rows: list[_Row] = []
    if at - start <= _MOST_HEADER_LINES:
        rows, at = _rows(lines, at, names)
    words = rows[0].rest.split() if rows else []
    is_peer = any(word != ITSELF and _PEER_CELL.fullmatch(word) for word in words)
    return _Block(start + 1, names, tuple(_HEADINGS.findall(text)), tuple(rows), at, is_peer)


def _goes_on(header: str, line: str) -> bool:
    """Whether a line is the rest of a header that a terminal has wrapped, and not the begin of another one."""
    return bool(line.strip()) and _is_header(f"{header} {line}") and next(_names(header)) not in _names(line)


def _rows(lines: Sequence[str], at: int, names: Sequence[str]) -> tuple[list[_Row], int]:
    """The rows from this line on, and the line after them. While rows are missing, a log may have others between."""
    label = _label(names)
    rows: list[_Row] = []
    strange = 0
    while at < len(lines):
        line = lines[at]
        row = _row(line, at + 1, label) if _header(line) is None else None
        if row is not None:
            rows.append(row)
        elif rows and line.strip() and _continues(line, rows[-1], len(names)):
            rows[-1] = _Row(rows[-1].line, rows[-1].name, f"{rows[-1].rest} {line}")
        elif not _RULED.fullmatch(line):
            strange += 1
            if "Legend" in line or _header(line) is not None or len(rows) == len(names) or strange > _MOST_STRANGE:
                break
        at += 1
    return rows, at


def _header(line: str) -> str | None:
    """The part of a line that names devices, if that is what it does: a log's prefix before it is left out."""
    begin = _GPU.search(line)
    return line[begin.start() :] if begin is not None and _is_header(line[begin.start() :]) else None


def _is_header(text: str) -> bool:
    devices, after = _halves(text)
    return not _NAME.sub("", devices).strip(" \t") and not _HEADINGS.sub("", after).strip(" \t")


def _names(text: str) -> Iterator[str]:
    return (match.group() for match in _NAME.finditer(_halves(text)[0]))


def _halves(text: str) -> tuple[str, str]:
    """The names of a header, and its headings of what is no device."""
    match = _HEADINGS.search(text)
    return (text, "") if match is None else (text[: match.start()], text[match.start() :])


def _row(line: str, number: int, label: re.Pattern[str]) -> _Row | None:
    """A line that begins, but for a log's prefix, with the name of a device and a word of the matrix."""
    match = label.search(line)
    if match is None:
        return None
    rest = line[match.end() :]
    is_row = _CELL.match(rest) or (rest[:1].isspace() and rest.strip())
    return _Row(number, match.group(), rest) if is_row else None


def _label(names: Sequence[str]) -> re.Pattern[str]:
    """What a row begins with: any GPU, or a NIC of the header. The longest first: mlx5_10 is not mlx5_1."""
    nics = sorted((re.escape(name) for name in names if not _GPU.fullmatch(name)), key=len, reverse=True)
    return re.compile("|".join((_GPU.pattern, *nics)))


def _continues(line: str, row: _Row, count: int) -> bool:
    """Whether a line goes on with a row that a terminal has wrapped."""
    if len(_CELL.findall(row.rest)) < count:
        return _CELL.match(line.lstrip()) is not None
    return _AFFINITY.fullmatch(line.strip()) is not None


def _table(block: _Block) -> SmiTable:
    names = block.names
    gpus = [name for name in names if _GPU.fullmatch(name)]
    if wrong := next((name for name in gpus if len(name) > 5 or int(name[3:]) >= MAX_GPUS_PER_NODE), None):
        raise Torn(block.line, f"the header names {wrong[:_SHOWN_LENGTH]}; expected GPU0 to GPU{MAX_GPUS_PER_NODE - 1}")
    if wrong := next((name for name in names if len(name) > MAX_NAME_LENGTH), None):
        raise Torn(block.line, f"the header names {wrong[:_SHOWN_LENGTH]}…, which is too long for a device")
    if list(names[: len(gpus)]) != gpus or len(gpus) > MAX_GPUS_PER_NODE or len(names) - len(gpus) > MAX_NICS_PER_NODE:
        most = f"at most {MAX_GPUS_PER_NODE} GPUs and then at most {MAX_NICS_PER_NODE} NICs"
        raise Torn(block.line, f"the header names {len(gpus)} GPUs and {len(names) - len(gpus)} NICs; expected {most}")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Torn(block.line, f"the header names {twice} twice")
    rows: dict[str, _Row] = {}
    for row in block.rows:
        if row.name not in names:
            raise Torn(row.line, f"row {row.name}: the header has no such column")
        if row.name in rows:
            raise Torn(row.line, f"row {row.name} is there twice, first in line {rows[row.name].line}")
        rows[row.name] = row
    if missing := [name for name in names if name not in rows]:
        raise Torn(block.line, f"row {missing[0]} is missing: the header names it, and {len(rows)} rows are there")
    found = [_cells(rows[name], names, block.headings) for name in names]
    cells = tuple(row for row, _ in found)
    _check(cells, names, rows)
    return SmiTable(block.line, names, cells, tuple(numa for _, numa in found))


def _cells(row: _Row, names: Sequence[str], headings: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The words of one row, and its NUMA affinity."""
    words: list[str] = []
    rest = row.rest
    for name in names:
        left = rest.lstrip()
        match = _CELL.match(left)
        if match is None:
            if not left or _AFFINITY.match(left):
                count = f"{len(words)} of {len(names)} cells"
                raise Torn(row.line, f"row {row.name}, column {name}: is missing; the row has {count}")
            word = left.split()[0][:_SHOWN_LENGTH]
            allowed = f"{ITSELF}, NV and a number, {', '.join(LEVELS)} or {UNKNOWN}"
            raise Torn(row.line, f"row {row.name}, column {name}: is {word!r}; expected {allowed}")
        word = _OLD_WORDS.get(match.group(), match.group())
        if links_of(word) > MAX_LINKS_PER_GPU:
            raise Torn(
                row.line, f"row {row.name}, column {name}: is {word}; no GPU has more than {MAX_LINKS_PER_GPU} links"
            )
        words.append(word)
        rest = left[match.end() :]
    after = _CELL.match(rest.lstrip())
    if after is not None and after.group() != UNKNOWN:
        raise Torn(row.line, f"row {row.name}: has {after.group()} after the last of the {len(names)} columns")
    return tuple(words), _numa(rest, headings)


def links_of(word: str) -> int:
    """How many NVLinks a word of the matrix stands for."""
    return int(word[2:6]) if word.startswith("NV") else 0


def _numa(rest: str, headings: Sequence[str]) -> str:
    """The field below NUMA Affinity; empty where it cannot be told apart from its neighbours."""
    place = next((place for place, heading in enumerate(headings) if heading.startswith("NUMA")), None)
    if place is None:
        return ""
    if "\t" in rest.rstrip(" "):  # an empty field shows by its tab
        fields = [field.strip() for field in rest.split("\t")[1:]]
        return fields[place] if place < len(fields) else ""
    words = rest.split()
    return words[place] if len(words) == len(headings) else ""


def _check(cells: Sequence[Sequence[str]], names: Sequence[str], rows: dict[str, _Row]) -> None:
    """A matrix has X on its diagonal alone, says the same both ways, and NVLinks between GPUs only."""
    for a, name in enumerate(names):
        line = rows[name].line
        for b, other in enumerate(names):
            word, back = cells[a][b], cells[b][a]
            place = f"row {name}, column {other}: is {word}"
            if (word == ITSELF) != (a == b):
                raise Torn(line, f"{place}; {ITSELF} stands where row and column are the same, and nowhere else")
            if word != back:
                raise Torn(line, f"{place}, but row {other}, column {name} is {back}; both must be the same")
            if links_of(word) and not (_GPU.fullmatch(name) and _GPU.fullmatch(other)):
                raise Torn(line, f"{place}; only GPUs have NVLinks")
