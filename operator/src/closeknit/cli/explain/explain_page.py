"""What `closeknit explain` prints for people."""

from datetime import datetime

from closeknit.cli.answers.job_answers import Explanation, Run, Where
from closeknit.cli.jobs.job_lines import INKS
from closeknit.cli.jobs.since import ago, until
from closeknit.cli.output.page import Ink, Inked, Page, length

_RUNS_SHOWN = 3  # the rest with -o wide
_PODS_SHOWN = 5
_VERBS = {
    "Queued": "waits for GPUs",
    "Starting": "starts",
    "Running": "runs",
    "Restarting": "is to start again",
    "Suspended": "is suspended",
    "Succeeded": "has succeeded",
    "Failed": "has failed",
}
_STEADY = ("Succeeded", "Failed")


def draw(told: Explanation, page: Page, now: datetime, *, is_wide: bool) -> None:
    """One reason and one next step first."""
    ink = INKS.get(told.state) if told.reason is None or told.state != "Running" else Ink.CARE
    page.say(Inked(f"{told.namespace}/{told.name} {_VERBS.get(told.state, told.state)}", ink), _headline(told, now))
    if told.message:
        page.say(told.message, indent=2)
    if told.estimated_start is not None:
        page.say(f"expected to start: {until(told.estimated_start, now)}")
    if told.next_step is not None:
        page.say(Inked("next step: ", Ink.STRONG), told.next_step.text)
    if told.where is not None and told.state not in _STEADY:
        page.gap()
        _draw_where(told, told.where, page)
    for warning in told.warnings:
        page.say(f"warning: {warning}")
    _draw_pods(told, page, is_wide=is_wide)
    _draw_runs(told, page, now, is_wide=is_wide)
    if is_wide:
        _draw_rest(told, page, now)


def _headline(told: Explanation, now: datetime) -> str:
    length_told = ago(told.since, now)
    words = "" if length_told == "-" else f", {length_told} ago" if told.state in _STEADY else f", for {length_told}"
    return f"{words}: {told.reason}" if told.reason else words


def _draw_where(told: Explanation, where: Where, page: Page) -> None:
    spans = ", ".join(_count(domains, level) for level, domains in where.levels.items())
    few = f"{where.gpus_held} of its " if where.gpus_held is not None else ""
    gpus = f"{few}{_count(told.gpus or 0, 'GPU')} {'on' if few else 'of'} {_count(where.nodes, 'node')}"
    page.say(f"sits on {gpus}{f' in {spans}' if spans else ''}")
    if where.lent is not None:
        page.say(where.lent)
    predicted, ideal = where.predicted_bus_bandwidth_gb_s, where.ideal_bus_bandwidth_gb_s
    if predicted is not None:
        loss = ""
        if ideal is not None and ideal > predicted:
            loss = f", {1 - predicted / ideal:.0%} less than the {ideal:.1f} that this cluster could give at best"
        page.say(f"predicted all-reduce bus bandwidth: {predicted:.1f} GB/s{loss}")
    if where.limited_by:
        page.say(f"limited by: {where.limited_by}")
    if where.ended_at_budget:
        page.say("the search ended at its budget of steps: there may be a better placement")


def _draw_pods(told: Explanation, page: Page, *, is_wide: bool) -> None:
    ill = [each for each in told.pods or () if each.status not in ("Running", "Completed")]
    if not ill or told.state in _STEADY:
        return
    page.gap()
    shown = ill if is_wide else ill[:_PODS_SHOWN]
    page.columns(("POD", "NODE", "STATUS", "WHY"), [(e.name, e.node or "-", e.status, e.message or "-") for e in shown])
    if len(ill) > len(shown):
        page.say(f"and {len(ill) - len(shown)} more: -o wide shows them")


def _draw_runs(told: Explanation, page: Page, now: datetime, *, is_wide: bool) -> None:
    if not told.runs:
        return
    page.gap()
    shown = told.runs if is_wide else told.runs[-_RUNS_SHOWN:]
    page.columns(
        ("ATTEMPT", "ENDED", "WHY", "RAN", "BACK AFTER", "CHARGED"),
        [
            (
                str(run.attempt),
                f"{ago(run.ended, now)} ago",
                run.reason,
                "-" if run.ran_seconds is None else length(run.ran_seconds),
                _back(run),
                "yes" if run.charged else "no",
            )
            for run in shown
        ],
    )
    if len(told.runs) > len(shown):
        page.say(f"and {_count(len(told.runs) - len(shown), 'end')} before: -o wide shows them")


def _back(run: Run) -> str:
    phases = {name: seconds for name, seconds in run.phases_seconds.items() if name != "firstStep"}
    if "start" not in phases:
        return "-"
    return f"{length(sum(phases.values()))}{' in place' if run.in_place else ''}"


def _draw_rest(told: Explanation, page: Page, now: datetime) -> None:
    for run in told.runs:
        page.gap()
        page.say(Inked(f"attempt {run.attempt}: {run.reason}", Ink.STRONG), f": {run.message}" if run.message else "")
        if run.phases_seconds:
            page.say(", ".join(f"{_phase(name)} {s} s" for name, s in run.phases_seconds.items()), indent=2)
        if run.blamed:
            page.say(f"blamed: {', '.join(run.blamed)}", indent=2)
        for words in run.exits:
            page.say(words, indent=2)
    page.gap()
    for number, change in enumerate(told.nearest):
        page.say(f"{'would fit' if number == 0 else 'or'} {change}")
    facts = {
        "waits since": "" if told.waits_since is None else f"{told.waits_since} ({ago(told.waits_since, now)})",
        "queue": told.queue or "",
        "priority class": told.priority_class_name or "",
        "NCCL in its Pods": told.nccl_version or "",
        "attempt": f"{told.attempt}, {_count(told.restarts, 'restart')}",
        "trained": "" if told.trained_seconds is None else length(told.trained_seconds),
        "effective training time": "" if told.ettr is None else f"{told.ettr:.1%}",
        "lost GPU-hours": ", ".join(f"{cause} {s / 3600:.1f}" for cause, s in told.lost_gpu_seconds.items()),
    }
    for name, words in facts.items():
        if words:
            page.say(f"{name}: {words}")
    if told.pods is None:
        page.say("its Pods: you may not list them")
    elif told.pods:
        page.gap()
        rows = [(each.name, each.node or "-", each.status, str(each.restarts)) for each in told.pods]
        page.columns(("POD", "NODE", "STATUS", "RESTARTS"), rows)


def _phase(name: str) -> str:
    return "first step" if name == "firstStep" else name


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
