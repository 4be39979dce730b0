"""Traces: jobs with the time they come and how long they run, as CSV with a header or as one JSON object a line.

| column | is |
|---|---|
| arrival | seconds since the trace begins; jobs may stand in any order |
| duration | seconds that the job runs once it has begun |
| gpus | 1 to 65536, or a part of one, such as 0.25 |

The others may be missing, and mean what the fields of a TrainingJob mean.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError

from closeknit.api.text.quantity import quantity
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.api.wire import FieldError
from closeknit.cli.input.bad_input import BadInput
from closeknit.cli.input.given import bytes_of
from closeknit.cli.input.strict import expected, shown
from closeknit.simulation.submission import Submission

MAX_BYTES = 64 << 20
MAX_JOBS = 100_000  # each costs two decisions, of 16 ms on 847 nodes
MAX_LINE = 4096
MAX_S = 1e9  # 31 years: a moment of the trace is one of the calendar

_WAY: Mapping[str, tuple[str, ...]] = {
    "tensor": ("parallelism", "tensor"),
    "context": ("parallelism", "context"),
    "pipeline": ("parallelism", "pipeline"),
    "expert": ("parallelism", "expert"),
    "gpusPerNode": ("topology", "gpusPerNode"),
    "nvlink": ("topology", "nvlink"),
    "required": ("topology", "fabric", "required"),
    "preferred": ("topology", "fabric", "preferred"),
    "patience": ("topology", "fabric", "patience"),
    "minMemory": ("gpu", "minMemory"),
    "priorityClass": ("priorityClassName",),
    "expectedDuration": ("expectedDuration",),
    "minGPUs": ("elastic", "minGPUs"),
    "defragment": ("defragment",),
}
_NUMBERS = frozenset({"tensor", "context", "pipeline", "expert", "gpusPerNode", "minGPUs"})
_LISTED = {"product": ("gpu", "products")}
_OF_EACH_POD = ("cpu", "memory")
REQUIRED = ("arrival", "duration", "gpus")
COLUMNS = (*REQUIRED, *_WAY, *_LISTED, *_OF_EACH_POD)

_Row = dict[str, Any]
_Asked = tuple[tuple[str, Any], ...]


class _Place(NamedTuple):
    """A line of a trace."""

    file: Path
    line: int

    def bad(self, column: str, message: str) -> BadInput:
        return BadInput(self.file, self.line, f"column {column}" if column else "", message)


def trace(file: Path) -> list[Submission]:
    """The jobs of a trace, in the order of its lines. Raises BadInput at the first mistake."""
    text = _text(file)
    rows = _of_json(file, text) if text.lstrip().startswith("{") else _of_csv(file, text)
    found: list[Submission] = []
    specs: dict[_Asked, TrainingJobSpec] = {}
    for place, row in rows:
        if len(found) == MAX_JOBS:
            raise place.bad("", f"is job {MAX_JOBS + 1:,}; a trace has {MAX_JOBS:,} at most: cut it")
        found.append(_submission(place, row, specs))
    if not found:
        raise BadInput(file, None, "", "has no jobs")
    return found


def _text(file: Path) -> str:
    try:
        return bytes_of(file, MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(file, None, "", f"is not UTF-8 text (byte {error.start})") from None


def _of_json(file: Path, text: str) -> Iterator[tuple[_Place, _Row]]:
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        place = _Place(file, number)
        if not line.strip():
            continue
        if len(line) > MAX_LINE:
            raise place.bad("", f"has more than {MAX_LINE:,} characters")
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise place.bad("", f"is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}") from None
        if not isinstance(row, dict):
            raise place.bad("", "expected a JSON object")
        for column in row:
            if column not in COLUMNS:
                raise place.bad(column, f"unknown; allowed: {', '.join(COLUMNS)}")
        yield place, {column: value for column, value in row.items() if value is not None}


def _of_csv(file: Path, text: str) -> Iterator[tuple[_Place, _Row]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    try:
        for cells in reader:
            place = _Place(file, reader.line_num)
            if not cells:
                continue
            if not header:
                header = _header(place, cells)
                continue
            if len(cells) != len(header):
                raise place.bad("", f"has {len(cells)} columns, the header {len(header)}")
            yield (
                place,
                {
                    column: _value(place, column, cell.strip())
                    for column, cell in zip(header, cells, strict=True)
                    if cell.strip()
                },
            )
    except csv.Error as error:
        raise _Place(file, reader.line_num).bad("", f"is not valid CSV: {error}") from None


def _header(place: _Place, cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    for column in header:
        if column not in COLUMNS:
            raise place.bad(column, f"unknown; allowed: {', '.join(COLUMNS)}")
        if header.count(column) > 1:
            raise place.bad(column, "is there twice")
    for column in REQUIRED:
        if column not in header:
            raise place.bad(column, "is required in the header")
    return header


def _value(place: _Place, column: str, cell: str) -> Any:
    """A cell of CSV as JSON would have it."""
    if column not in _NUMBERS and column not in REQUIRED:
        return cell
    try:
        return int(cell) if cell.lstrip("+-").isascii() and cell.lstrip("+-").isdigit() else float(cell)
    except ValueError:  # too many digits among them
        raise place.bad(column, f"{shown(cell)}; expected a number") from None


def _submission(place: _Place, row: _Row, specs: dict[_Asked, TrainingJobSpec]) -> Submission:
    at_s, run_s, gpus = (_number(place, row, column) for column in REQUIRED)
    if not 0 <= at_s <= MAX_S:
        raise place.bad("arrival", f"{shown(row['arrival'])}; expected 0 to {MAX_S:.0f} seconds")
    if not 0 < run_s <= MAX_S:
        raise place.bad("duration", f"{shown(row['duration'])}; expected more than 0 and at most {MAX_S:.0f} seconds")
    if not (0 < gpus < 1 or gpus == gpus // 1):
        raise place.bad("gpus", f"{shown(row['gpus'])}; expected a whole number, or a part of one GPU such as 0.25")
    asked = {column: value for column, value in row.items() if column not in REQUIRED}
    whole = 1 if 0 < gpus < 1 else int(gpus)
    key: _Asked = (("gpus", whole), *((column, repr(value)) for column, value in sorted(asked.items())))
    if key not in specs:
        specs[key] = _spec(place, whole, asked)
    return Submission(place.line, at_s, run_s, specs[key], gpus if 0 < gpus < 1 else 1.0)


def _number(place: _Place, row: _Row, column: str) -> float:
    if column not in row:
        raise place.bad(column, "is required")
    value = row[column]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:  # NaN is no number
        raise place.bad(column, f"{shown(value)}; expected a number")
    return float(value)


def _spec(place: _Place, gpus: int, asked: _Row) -> TrainingJobSpec:
    """What the columns ask for. Objects are shared by all jobs that ask alike."""
    requests = {resource: asked[resource] for resource in _OF_EACH_POD if resource in asked}
    for resource, amount in requests.items():
        if not _is_quantity(amount):
            raise place.bad(resource, f"{shown(amount)}; expected a quantity such as 4 or 16Gi")
    container = {"name": "trainer", "image": "simulated", "resources": {"requests": requests}}
    body: dict[str, Any] = {"gpus": gpus, "template": {"spec": {"containers": [container]}}}
    for column, way in (*_WAY.items(), *_LISTED.items()):
        if column in asked:
            inside = body
            for step in way[:-1]:
                inside = inside.setdefault(step, {})
            inside[way[-1]] = [asked[column]] if column in _LISTED else asked[column]
    try:
        return TrainingJobSpec.parse_strictly(body)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=True)[0]
    rule = fault.get("ctx", {}).get("error")
    if isinstance(rule, FieldError):
        raise place.bad(_column(tuple(rule.field.split("."))), rule.message)
    raise place.bad(_column(fault["loc"]), f"{shown(fault['input'])}; {expected(fault)}")


def _is_quantity(amount: object) -> bool:
    """Whether it is an amount of a resource: of a template that a job has the API server would say so."""
    if not isinstance(amount, str | int) or isinstance(amount, bool):
        return False
    try:
        quantity(amount)
    except ValueError:
        return False
    return True


def _column(way: tuple[str | int, ...]) -> str:
    """The column that a field of the spec was written from; gpus, for rules that have several."""
    for column, of in (*_WAY.items(), *_LISTED.items()):
        if of == way[: len(of)]:
            return column
    return "gpus"
