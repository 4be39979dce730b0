"""`closeknit topology`: finds the machine that was asked for, and prints it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from closeknit.api.names import API_VERSION, NODE_TOPOLOGY
from closeknit.api.objects import NodeTopology
from closeknit.api.text.printable import printable
from closeknit.cli.input import cluster_file
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.input.standard_input import named
from closeknit.cli.topology.drawing import drawing
from closeknit.cli.topology.machine_files import from_smi
from closeknit.cli.topology.machine_sheet import MachineSheet, sheet
from closeknit.cli.topology.machine_table import print_sheet, print_sheets
from closeknit.machine.checks import InvalidTopology
from closeknit.placement.values.sentences import count


@dataclass(frozen=True, slots=True)
class TopologyArguments:
    """Which machine, and where it is described: in one file, or in the cluster."""

    node: str | None
    file: Path | None
    smi: Path | None
    reach: Reach
    live: bool = False


async def show(asked: TopologyArguments, form: str) -> None:
    """Prints one machine, or all that there are: as `table`, `json`, `yaml` or `svg`. Raises BadInput and NotThere."""
    if asked.live:
        await _watch(asked, form)
        return
    found, unreadable = await _found(asked)
    is_one = asked.node is not None or len(found) + len(unreadable) == 1
    if unreadable and (is_one or form != "table"):  # a program must not take a part for all
        raise NotThere(unreadable[0])
    match form:
        case "json":
            print(json.dumps(_document(found, is_one), indent=2))
        case "yaml":
            import yaml  # noqa: PLC0415 - the other forms need not wait for it

            print(yaml.safe_dump(_document(found, is_one), sort_keys=False, width=120), end="")
        case "svg" if not is_one:
            raise NotThere(f"a picture shows one machine; name one of {_names(found)}")
        case "svg":
            print(drawing(_sheet(found[0])), end="")
        case _ if is_one:
            print_sheet(_sheet(found[0]))
        case _:
            sheets, refused = [], list(unreadable)
            for topology in found:
                try:
                    sheets.append(_sheet(topology))
                except NotThere as error:
                    refused.append(str(error))
            print_sheets(sheets, refused)


async def _watch(asked: TopologyArguments, form: str) -> None:
    if asked.node is None or asked.file is not None or asked.smi is not None or form != "table":
        raise NotThere("--live shows one node of the cluster as a table; give its name, and no file")
    from closeknit.cli.topology.watching import watch  # noqa: PLC0415 - files need not wait for its libraries

    await watch(asked.node, asked.reach, _sheet)


async def _found(asked: TopologyArguments) -> tuple[list[NodeTopology], list[str]]:
    """Those that can be read, and what keeps from reading others; never both empty, and with a node no other."""
    if asked.file is not None and asked.smi is not None:
        raise NotThere("give either --filename or --from-smi")
    if asked.file is not None or asked.smi is not None:
        asked.reach.check_not_asked("--filename" if asked.smi is None else "--from-smi")
    if asked.smi is not None:
        return [from_smi(asked.smi, asked.node)], []
    if asked.file is not None:
        return _named(cluster_file.node_topologies(asked.file), asked.node, named(asked.file)), []
    from closeknit.cli.topology.live_machines import node_topologies  # noqa: PLC0415 - files need not wait for its libraries

    machines = await node_topologies(asked.node, asked.reach)
    if machines.unreadable and not machines.topologies:
        return [], machines.unreadable
    return _named(machines.topologies, asked.node, "the cluster"), machines.unreadable


def _named(found: Sequence[NodeTopology], node: str | None, where: str) -> list[NodeTopology]:
    if not found:
        raise NotThere(printable(f"{where} has no NodeTopology"))
    wanted = [topology for topology in found if node in (None, topology.metadata.name)]
    if not wanted:
        raise NotThere(printable(f"{where} has no NodeTopology {node}; it has {_names(found)}"))
    return sorted(wanted, key=lambda topology: topology.metadata.name)


def _names(found: Sequence[NodeTopology], most: int = 10) -> str:
    names = sorted(topology.metadata.name for topology in found)
    more = f" and {count(len(names) - most, 'other')}" if len(names) > most else ""
    return printable(", ".join(names[:most]) + more)


def _sheet(topology: NodeTopology) -> MachineSheet:
    try:
        return sheet(topology)
    except InvalidTopology as error:
        raise NotThere(printable(f"the NodeTopology {topology.metadata.name} contradicts itself: {error}")) from None


def _document(found: Sequence[NodeTopology], is_one: bool) -> dict[str, object]:
    items = [
        {
            "apiVersion": API_VERSION,
            "kind": NODE_TOPOLOGY,
            **topology.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True),
        }
        for topology in found
    ]
    return items[0] if is_one else {"apiVersion": "v1", "kind": "List", "items": items}
