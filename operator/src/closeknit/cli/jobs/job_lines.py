"""Jobs, a line each."""

from collections.abc import Iterable
from datetime import datetime

from closeknit.cli.answers.job_answers import JobLine, JobList
from closeknit.cli.jobs.found_jobs import FoundJobs
from closeknit.cli.jobs.since import ago, since, until
from closeknit.cli.jobs.told_job import ToldJob
from closeknit.cli.output.page import Ink, Inked, Page

ORDER = ("Running", "Starting", "Restarting", "Queued", "Suspended", "Failed", "Succeeded")
INKS = {"Running": Ink.GOOD, "Starting": Ink.CARE, "Restarting": Ink.CARE, "Queued": Ink.CARE, "Failed": Ink.BAD}


_OPTIONAL = ("QUEUE", "PRIORITY", "STARTS", "REASON", "MESSAGE")


def job_list(found: FoundJobs) -> JobList:
    """The answer."""
    lines = sorted(map(_line, found.jobs), key=_place)
    return JobList(namespace=found.namespace, items=tuple(lines))


def _place(line: JobLine) -> tuple[int, str, str, str]:
    at = ORDER.index(line.state) if line.state in ORDER else len(ORDER)
    return at, line.since or "", line.namespace, line.name


def _line(job: ToldJob) -> JobLine:
    status, placed = job.status, job.status.placement if job.state not in ("Succeeded", "Failed") else None
    return JobLine(
        namespace=job.key.namespace,
        name=job.key.name,
        state=job.state,
        reason="Unreadable" if job.unreadable and not job.reason else job.reason,
        message=status.message or job.unreadable,
        gpus=job.spec.gpus,
        gpus_held=placed.gpus if placed is not None else None,
        nodes=placed.node_count if placed is not None else None,
        predicted_bus_bandwidth_gb_s=placed.predicted_bus_bandwidth_gb_s if placed is not None else None,
        ideal_bus_bandwidth_gb_s=placed.ideal_bus_bandwidth_gb_s if placed is not None else None,
        restarts=status.restarts or 0,
        since=since(job),
        created=job.metadata.creation_timestamp,
        estimated_start=status.pending.estimated_start if status.pending is not None else None,
        queue=job.spec.queue,
        priority_class_name=job.spec.priority_class_name,
    )


def draw(found: JobList, page: Page, now: datetime, *, is_wide: bool) -> None:
    """A table; what is empty is said."""
    if not found.items:
        where = "all namespaces" if found.namespace is None else f"namespace {found.namespace}"
        page.say(f"no TrainingJobs in {where}")
        return
    headings = ["NAME", "STATUS", "GPUS", "NODES", "GB/S", "FOR"]
    headings += ["RESTARTS", "QUEUE", "PRIORITY", "STARTS", "REASON", "MESSAGE"] if is_wide else ["REASON"]
    has_namespaces = found.namespace is None
    rows = []
    for line in found.items:
        row: list[Inked | str] = [line.namespace] if has_namespaces else []
        row += [
            line.name,
            Inked(line.state, INKS.get(line.state)),
            _number(line.gpus) if line.gpus_held is None else f"{line.gpus_held}/{_number(line.gpus)}",
            _number(line.nodes),
            bandwidth(line.predicted_bus_bandwidth_gb_s, line.ideal_bus_bandwidth_gb_s),
            ago(line.since, now),
        ]
        if is_wide:
            row += [str(line.restarts), line.queue or "-", line.priority_class_name or "-"]
            row += [until(line.estimated_start, now), line.reason or "-"]
            row.append(line.message or "-")
        else:
            row.append(line.reason or "-")
        rows.append(row)
    page.columns([*(["NAMESPACE"] if has_namespaces else []), *headings], rows, optional=_OPTIONAL)


def bandwidth(predicted: float | None, ideal: float | None) -> str:
    """What is predicted, and of what where that is less than could be: 41/360."""
    if predicted is None:
        return "-"
    if ideal is None or predicted >= ideal:
        return f"{predicted:.0f}"
    return f"{predicted:.0f}/{ideal:.0f}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def counted(jobs: Iterable[ToldJob]) -> dict[str, int]:
    """How many jobs are in each state, in the order of lists; states without any are left out."""
    found: dict[str, int] = {}
    for job in jobs:
        found[job.state] = found.get(job.state, 0) + 1
    return {state: found[state] for state in (*ORDER, *sorted(found.keys() - set(ORDER))) if state in found}
