"""What `closeknit env` prints."""

import json
from dataclasses import asdict

from closeknit.api.text.printable import printable
from closeknit.cli.env.variables import EnvironmentSheet


def as_json(sheet: EnvironmentSheet) -> str:
    """One JSON object, of ASCII alone."""
    variables = [{**asdict(line), "setter": line.setter.value} for line in sheet.lines]
    body = {
        "job": str(sheet.job),
        "node": sheet.node,
        "nodeRank": sheet.node_rank,
        "variables": variables,
        "warnings": sheet.warnings,
        "overTCP": sheet.over_tcp,
        "lacks": sheet.lacks,
        "leftToNCCL": sheet.left,
        "ncclVersion": sheet.nccl_version,
        **({} if sheet.booked is None else {"booked": sheet.booked.wire()}),
    }
    return json.dumps(body, indent=2)


def print_sheet(sheet: EnvironmentSheet) -> None:
    """A table for people, whole lines however wide the terminal is: values are there to be copied."""
    if sheet.booked is not None:
        print(printable(f"{sheet.job} {sheet.booked}; if the job of the file replaced it:"))
    print(printable(f"{sheet.job}, node rank {sheet.node_rank} on {sheet.node}"))
    rows = [("VARIABLE", "VALUE", "SET BY", "WHY")]
    rows += [(printable(line.name), printable(line.value), line.setter.value, printable(line.why))
             for line in sheet.lines]  # fmt: skip
    name, value = (max(min(len(row[column]), 48) for row in rows) for column in (0, 1))
    for row in rows:
        print(f"{row[0]:<{name}}  {row[1]:<{value}}  {row[2]:<9}  {row[3]}".rstrip())
    if sheet.nccl_version is not None:
        print(f"NCCL in its Pods: {sheet.nccl_version}")
    for warning in sheet.warnings:
        print(printable(f"warning: {warning}"))
    if sheet.over_tcp is not None:
        print(printable(sheet.over_tcp))
    if sheet.lacks is not None:
        print(printable(f"lacks: {sheet.lacks}"))
    if sheet.left:
        print(f"left to NCCL: {', '.join(sheet.left)}")
