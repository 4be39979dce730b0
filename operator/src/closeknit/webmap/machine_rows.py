"""Nodes and their machines as rows."""

from hashlib import sha256

import msgspec

from closeknit.api.nodetopology import PortState
from closeknit.cluster.node.node import Holder, HolderKind, MigView, NodeView
from closeknit.machine.checks import LEVELS
from closeknit.machine.graph import Machine, MachineNic
from closeknit.machine.islands import islands
from closeknit.webmap.map_rows import CLAIM, POD, MachineRow, MigRow, NodeRow

_NEAR = LEVELS[:3]  # below one PCIe switch, or on one host bridge
_NOBODY = {HolderKind.POD: POD, HolderKind.CLAIM: CLAIM}
_KEY_DIGITS = 12  # among 10,000 kinds two have one key with a chance of 1 to 5 million
_WORDS = 300  # characters: an exclusion is one clause


def machine_key(machine: Machine) -> str:
    """Two machines of one key have the same row, and only they: a row takes 0.03 ms, and is asked for once a node."""
    return sha256(msgspec.json.encode(machine_row(machine))).hexdigest()[:_KEY_DIGITS]


def machine_row(machine: Machine) -> MachineRow:
    """What is drawn of a machine."""
    count = range(len(machine.gpus))
    found = islands(machine, count)
    speeds = {gpu.link_bandwidth_gb_s for gpu in machine.gpus}
    return MachineRow(
        indexes=tuple(gpu.index for gpu in machine.gpus),
        products=tuple(sorted({gpu.product or "unknown product" for gpu in machine.gpus})),
        islands=tuple(tuple(machine.gpus[at].index for at in island) for island in found if len(island) > 1),
        links=tuple((a, b, machine.links[a][b]) for a in count for b in count if a < b and machine.links[a][b]),
        switch_links=machine.switch_links if machine.switched else (),
        nics=tuple(map(_nic, machine.nics)),
        link_gb_s=speeds.pop() if len(speeds) == 1 else None,
    )


def _nic(nic: MachineNic) -> tuple[str, tuple[int, ...], bool]:
    nearest = min(nic.gpu_levels, key=LEVELS.index, default="")
    near = tuple(at for at, level in enumerate(nic.gpu_levels) if level == nearest and level in _NEAR)
    return nic.name, near, nic.state is PortState.DOWN


def node_row(view: NodeView) -> NodeRow:
    """What is drawn of a node."""
    held: dict[str, list[int]] = {}
    for gpu, holder in view.holders.items():
        held.setdefault(holder_word(holder), []).append(gpu)
    excluded = view.exclusion
    return NodeRow(
        machine="" if view.machine is None else machine_key(view.machine),
        domains=tuple(domain for domain in view.domains[:-1] if domain is not None),
        free=view.free,
        held={who: tuple(gpus) for who, gpus in held.items()},
        unnamed=max(0, len(view.free) - view.free_gpus) if excluded is None else 0,
        unusable={gpu: str(fault)[:_WORDS] for gpu, fault in view.unusable.items() if gpu not in view.holders},
        mig=tuple(map(_mig, view.mig)),
        excluded="" if excluded is None else excluded.reason.value,
        message="" if excluded is None else excluded.message[:_WORDS],
    )


def _mig(device: MigView) -> MigRow:
    who = "" if device.holder is None else holder_word(device.holder)
    return MigRow(device.gpu, device.profile, who, "" if device.fault is None else str(device.fault)[:_WORDS])


def holder_word(holder: Holder) -> str:
    """A job by its name, anybody else by its kind."""
    return _NOBODY.get(holder.kind) or f"{holder.namespace}/{holder.name}"


def is_shown(view: NodeView) -> bool:
    """Whether it is a node with GPUs, or one of which that is not known."""
    return view.exclusion is None or not view.exclusion.has_no_gpus
