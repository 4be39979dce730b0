"""What `closeknit plan` prints: a table for people, JSON for programs."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from closeknit.api.trainingjob import PlacementStatus
from closeknit.cli.plan import Placed, Refused


def as_json(answer: Placed | Refused) -> str:
    """One JSON object: fits with placement, ranks and environment, or not with pending."""
    body: Mapping[str, Any]
    if isinstance(answer, Refused):
        pending = answer.pending
        reason = {"reason": pending.reason, "message": pending.message, "nearest": pending.nearest}
        body = {"fits": False, "pending": reason}
    else:
        body = {
            "fits": True,
            "placement": answer.placement.wire(),
            "ranks": [asdict(rank) | {"coordinates": rank.coordinates._asdict()} for rank in answer.ranks],
            "environment": answer.environment,
        }
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()


def print_table(answer: Placed | Refused, console: Console) -> None:
    """Nodes, GPUs, ranks and predicted bandwidth; or why it does not fit."""
    if isinstance(answer, Refused):
        console.print(f"[bold]{answer.job}[/bold] does not fit: {answer.pending.reason}", highlight=False)
        console.print(answer.pending.message, highlight=False, markup=False)
        return
    placement = answer.placement
    console.print(f"[bold]{answer.job}[/bold] fits: {_summary(placement)}", highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("NODE", "GPUS", "RANKS", "NICS", "BINDING"):
        table.add_column(heading)
    nics: list[str] = []
    for node in placement.nodes:
        nics = node.nics if node.nics is not None else nics
        table.add_row(node.name, ",".join(map(str, node.gpus)), node.ranks, ",".join(nics) or "-", str(node.binding))
    console.print(table)
    if placement.predicted_bus_bandwidth_gb_s is not None:
        ideal = placement.ideal_bus_bandwidth_gb_s
        best = f" of {ideal:.1f} at best" if ideal is not None else ""
        console.print(
            f"predicted all-reduce bus bandwidth: {placement.predicted_bus_bandwidth_gb_s:.1f} GB/s{best}",
            highlight=False,
        )
    if placement.limited_by:
        console.print(f"limited by: {placement.limited_by}", highlight=False)


def _summary(placement: PlacementStatus) -> str:
    gpus = sum(len(node.gpus) for node in placement.nodes)
    nodes = "1 node" if placement.node_count == 1 else f"{placement.node_count} nodes"
    spans = ", ".join(f"{count} {name}{'s' if count > 1 else ''}" for name, count in placement.levels.items())
    return f"{gpus} GPUs on {nodes}" + (f" in {spans}" if spans else "")
