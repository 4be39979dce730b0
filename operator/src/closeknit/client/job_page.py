"""A job as a notebook shows it: a table, and its GPUs as squares. Every text in it is escaped."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from closeknit.cli.answers.job_answers import Explanation, RankLine

MOST_NODES = 64  # rows of a page that people still read; the rest is counted
_GOOD, _CARE, _BAD = "#2e7d32", "#b26a00", "#c62828"
_OF_STATES = {"Running": _GOOD, "Succeeded": _GOOD, "Failed": _BAD}
_OF_PODS = {"Running": _GOOD, "Completed": _GOOD, "Pending": _CARE, "Terminating": _CARE}
_UNKNOWN = "#9e9e9e"


def page(told: Explanation, ranks: Sequence[RankLine]) -> str:
    """HTML: the facts of the job, then a row for each node, by node rank."""
    facts = {
        "state": f'<b style="color:{_OF_STATES.get(told.state, _CARE)}">{escape(told.state)}</b>',
        "reason": escape(told.reason or ""),
        "message": escape(told.message or ""),
        "next step": escape(told.next_step.text if told.next_step is not None else ""),
        "GPUs": "" if told.gpus is None else str(told.gpus),
        "predicted bandwidth": _bandwidth(told),
        "restarts": str(told.restarts) if told.restarts else "",
    }
    rows = "".join(f"<tr><th>{name}</th><td colspan='3'>{words}</td></tr>" for name, words in facts.items() if words)
    name = escape(f"{told.namespace}/{told.name}")
    return f"<table><caption>{name}</caption>{rows}{_nodes(ranks)}</table>"


def _bandwidth(told: Explanation) -> str:
    found = told.where.predicted_bus_bandwidth_gb_s if told.where is not None else None
    return "" if found is None else f"{found:.1f} GB/s"


def _nodes(ranks: Sequence[RankLine]) -> str:
    if not ranks:
        return ""
    shares = [list(share) for _, share in groupby(ranks, key=lambda each: each.node_rank)]
    rows = "".join(map(_row, shares[:MOST_NODES]))
    more = len(shares) - MOST_NODES
    rest = f"<tr><td colspan='4'>and {more} more</td></tr>" if more > 0 else ""
    return f"<tr><th>node</th><th>ranks</th><th>GPUs</th><th>Pod</th></tr>{rows}{rest}"


def _row(share: Sequence[RankLine]) -> str:
    first, last = share[0], share[-1]
    ranks = str(first.rank) if len(share) == 1 else f"{first.rank}-{last.rank}"
    status = first.pod_status or "-"
    squares = "".join(map(_square, share))
    return f"<tr><td>{escape(first.node)}</td><td>{ranks}</td><td>{squares}</td><td>{escape(status)}</td></tr>"


def _square(rank: RankLine) -> str:
    colour = _UNKNOWN if rank.pod_status is None else _OF_PODS.get(rank.pod_status, _BAD)
    title = escape(f"rank {rank.rank}: GPU {rank.gpu} of {rank.node}", quote=True)
    style = f"display:inline-block;width:1em;height:1em;margin:1px;background:{colour}"
    return f'<span title="{title}" style="{style}"></span>'
