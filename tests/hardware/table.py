"""What a course has found, as the tables of docs/measurements."""

from collections.abc import Mapping, Sequence
from typing import Any

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all-to-all",
    "send/recv",
    "copy",
    "barrier",
)


def table(found: Mapping[str, Any]) -> str:
    """Markdown: one table for each sort of run, its collectives as rows and its ways as columns."""
    sorts = dict.fromkeys(run["what"] for run in found["runs"])
    parts = [_part(what, [run for run in found["runs"] if run["what"] == what]) for what in sorts]
    failed = [f"- {name} failed: {words.strip().splitlines()[-1]}" for name, words in found["failures"].items()]
    agent = [f"- agent, {fact}: {value}" for fact, value in found.get("agent", {}).items()]
    if agent:
        parts.append("\n".join(agent))
    return "\n\n".join([*parts, *(["\n".join(failed)] if failed else [])]) + "\n"


def _part(what: str, runs: Sequence[Mapping[str, Any]]) -> str:
    outside = next((run for run in runs if run["way"] == "outside"), None)
    rows = []
    for name in COLLECTIVES:
        figures = [_figure(run, name) for run in runs]
        if any(figures):
            rows.append([f"{name}, {'µs' if name == 'barrier' else 'GB/s'}", *figures])
    if any(run["predicted_gb_s"] for run in runs):
        rows.append(["predicted all-reduce, GB/s", *(_number(run["predicted_gb_s"]) for run in runs)])
    if outside and "all-reduce" in outside["bandwidths"]:
        base = outside["bandwidths"]["all-reduce"]
        shares = [f"{run['bandwidths'].get('all-reduce', 0) / base:.1%}" for run in runs]
        rows.append(["all-reduce of that outside", *shares])
    heads = [what, *(run["way"] for run in runs)]
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _figure(run: Mapping[str, Any], name: str) -> str:
    windows = [line["bus_gb_s"] for line in run["lines"] if line.get("collective") == name and "window" in line]
    return " / ".join(map(_number, windows)) if windows else _number(run["bandwidths"].get(name))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
