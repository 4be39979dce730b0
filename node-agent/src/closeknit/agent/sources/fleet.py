"""Fleet files: the nodes whose agents one process plays."""

from pathlib import Path

import msgspec

from closeknit.agent.discovery.simulated.profile import NO_FAULTS, Faults
from closeknit.agent.sources.recorded import RecordedSource
from closeknit.agent.sources.simulated import SimulatedSource, load_profile, read_yaml
from closeknit.agent.sources.source import Source, read_bytes


class FleetNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node: a profile, with faults if wanted, or a dump file. Paths are relative to the fleet file."""

    name: str
    kubeconfig: str  # logs in with a token that is bound to a Pod on this node
    profile: str | None = None
    dump: str | None = None
    faults: Faults = NO_FAULTS


class _Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: list[FleetNode]


def load_fleet(path: Path) -> list[tuple[FleetNode, Source]]:
    """The nodes of a fleet file with their machines; paths are made absolute. Raises ValueError."""
    try:
        return _members(msgspec.convert(read_yaml(read_bytes(path).decode()), _Fleet), path.parent)
    except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors
        raise ValueError(f"cannot read the fleet {path}: {error}") from error


def _members(fleet: _Fleet, folder: Path) -> list[tuple[FleetNode, Source]]:
    names = [node.name for node in fleet.nodes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"node {', '.join(twice)} is there twice")
    absolute = [msgspec.structs.replace(node, kubeconfig=str(folder / node.kubeconfig)) for node in fleet.nodes]
    return [(node, _source(node, folder)) for node in absolute]


def _source(node: FleetNode, folder: Path) -> Source:
    if node.profile is not None and node.dump is None:
        return SimulatedSource(load_profile(node.profile), node.name, node.faults)
    if node.dump is not None and node.profile is None and node.faults == NO_FAULTS:
        return RecordedSource(folder / node.dump)
    raise ValueError(f"node {node.name} needs either a profile, with faults if wanted, or a dump")
