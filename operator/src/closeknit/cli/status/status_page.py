"""What `closeknit status` prints for people."""

from datetime import datetime

from closeknit.api.names import NOT_SEEN
from closeknit.cli.answers.status_answer import ClusterLine, ClusterStatus, JobCounts
from closeknit.cli.jobs.since import ago, is_past
from closeknit.cli.output.page import Ink, Inked, Page

_DOMAINS_SHOWN = 8  # the rest with -o wide
_UNSEEN_S = 60  # so long an operator that starts, or is another one, may take to look at a job


def draw(told: ClusterStatus, page: Page, now: datetime, *, is_wide: bool) -> None:
    """GPUs, then what is free together, then jobs."""
    if told.cluster is not None:
        _draw_cluster(told.cluster, page, is_wide=is_wide)
        page.gap()
        _draw_jobs("jobs of the cluster", told.cluster.jobs, page, now)
    elif told.cluster_not_shown is not None:
        page.say(f"the cluster as a whole is not shown: {told.cluster_not_shown}")
    if told.cluster is None or (told.namespace is not None and told.jobs.states):
        page.gap()
        where = "all namespaces" if told.namespace is None else f"namespace {told.namespace}"
        _draw_jobs(f"jobs of {where}", told.jobs, page, now)
    is_live = told.cluster is None or told.cluster.told is not None
    unseen = next((each for each in told.jobs.waiting if each.reason == NOT_SEEN), None)
    if is_live and unseen is not None and is_past(unseen.since, now, _UNSEEN_S):
        page.gap()
        head = f"the operator has not looked at {_count(unseen.jobs, 'job')} for {ago(unseen.since, now)}"
        page.say(
            Inked(head, Ink.BAD),
            ": it does not run, or cannot read, and what it has told of the cluster is old. Have an administrator look "
            "at it: kubectl get pods -A -l app.kubernetes.io/component=operator",
        )
    if is_wide:
        page.gap()
        theirs = told.cluster.operator_version if told.cluster is not None else None
        page.say(f"closeknit {told.client_version}", f", operator {theirs}" if theirs else "; operator unknown")
        if told.cluster is not None and told.cluster.told is not None:
            page.say(f"the counts of the cluster last changed {ago(told.cluster.told, now)} ago")


def _draw_cluster(found: ClusterLine, page: Page, *, is_wide: bool) -> None:
    gpus = found.gpus
    whole = gpus.free + gpus.held + gpus.mig + gpus.unusable + gpus.excluded
    page.columns(
        ("", "ALL", "FREE", "HELD", "MIG", "UNUSABLE", "EXCLUDED"),
        [
            (
                "GPUs",
                str(whole),
                Inked(str(gpus.free), Ink.GOOD if gpus.free else None),
                str(gpus.held),
                str(gpus.mig),
                Inked(str(gpus.unusable), Ink.BAD if gpus.unusable else None),
                Inked(str(gpus.excluded), Ink.CARE if gpus.excluded else None),
            )
        ],
    )
    out = sum(found.excluded_nodes.values())
    why = ", ".join(f"{number} {reason}" for reason, number in found.excluded_nodes.items())
    page.say(f"{_count(found.nodes, 'node')} with GPUs", f"; {out} get no job: {why}" if out else "")
    if found.levels:
        page.gap()
        page.columns(
            ("LEVEL", "DOMAINS", "GPUS", "FREE", "LARGEST GANG"),
            [
                (each.name, str(each.domains), str(each.gpus), str(each.free_gpus), _number(each.largest_gang))
                for each in found.levels
            ],
        )
    if found.largest_gang is not None:
        page.say(f"largest gang that fits now: {_count(found.largest_gang, 'GPU')}")
    if found.islands:
        sizes = sorted(found.islands.items(), key=lambda each: -int(each[0]) if each[0].isdecimal() else 0)
        page.say(f"NVLink islands of free GPUs: {', '.join(f'{number} of {size}' for size, number in sizes)}")
    if found.domains:
        level = found.levels[-2].name if len(found.levels) > 1 else "domain"
        shown = found.domains if is_wide else found.domains[:_DOMAINS_SHOWN]
        page.gap()
        page.columns(
            (level.upper(), "NODES", "GPUS", "FREE"),
            [(each.name, str(each.nodes), str(each.gpus), str(each.free_gpus)) for each in shown],
        )
        if len(found.domains) > len(shown):
            page.say(f"and more with less: -o wide shows {len(found.domains)} of them")


def _draw_jobs(whose: str, jobs: JobCounts, page: Page, now: datetime) -> None:
    states = ", ".join(f"{number} {state}" for state, number in jobs.states.items())
    page.say(Inked(f"{whose}: ", Ink.STRONG), states or "none")
    if jobs.waiting:
        page.columns(
            ("WAITS FOR", "JOBS", "GPUS", "LONGEST"),
            [(each.reason, str(each.jobs), str(each.gpus), ago(each.since, now)) for each in jobs.waiting],
            indent=2,
        )


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
