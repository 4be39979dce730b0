"""The page of the table of blame, docs/blame.md: `python -m scenarios.blame` writes it, as `make generate` does."""

from datetime import timedelta
from pathlib import Path

from closeknit.cluster.pods.symptoms import (
    CONTAINER_REASONS,
    DRIVER_WORDS,
    EVICTIONS,
    KUBELET_REASONS,
    SCHEDULER_WORDS,
    WAITING_REASONS,
    WAITING_WORDS,
    Symptom,
    SymptomSource,
)
from closeknit.lifecycle.status.blame import TABLE, Blame, Follows, Row

PAGE = Path(__file__).parents[2] / "docs/blame.md"
HEAD = """# Whose fault it is, and what follows

What others say of a job's Pods, whose fault each of it is, and what comes of it. `make generate` writes this page from
the table that the operator decides by (`closeknit.lifecycle.status.blame`), and from the words that it knows
(`closeknit.cluster.pods.symptoms`). Only what is this job's fault is charged to it.
"""


def spoken(symptom: Symptom) -> list[str]:
    """The words that identify it."""
    known = (*SCHEDULER_WORDS, *KUBELET_REASONS, *EVICTIONS, *CONTAINER_REASONS, *WAITING_REASONS)
    drivers = DRIVER_WORDS if symptom is Symptom.DEVICES_NOT_GIVEN else ()
    waiting = WAITING_WORDS if symptom is Symptom.RANK_NOT_STARTED else ()
    return [*(words for words, found in known if found is symptom), *drivers, *waiting]


def page() -> str:
    """The text of docs/blame.md."""
    lines = [HEAD, "## What follows", "", "| what follows | that is |", "|---|---|"]
    lines += [f"| {each.value.word} | {each.value.means} |" for each in Follows]
    for source in SymptomSource:
        lines += ["", f"## {source.value}", "", "| what | whose fault | what follows | reason |", "|---|---|---|---|"]
        lines += [_row(symptom, TABLE[symptom]) for symptom in Symptom if symptom.source is source]
    return "\n".join(lines) + "\n"


def _row(symptom: Symptom, row: Row) -> str:
    words = ", ".join(f"`{each}`" for each in spoken(symptom))
    what = f"{symptom.means}{f': {words}' if words else ''}"
    after = f" after {row.after.total_seconds():.0f} s" if row.after > timedelta() else ""
    blame = f"**{row.blame.value}**" if row.blame is Blame.JOB else row.blame.value
    return f"| {what} | {blame} | {row.follows.value.word}{after} | `{row.reason}` |"


if __name__ == "__main__":
    PAGE.write_text(page())
