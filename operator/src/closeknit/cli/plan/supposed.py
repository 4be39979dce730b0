"""What a plan takes for granted though it is not so: nodes that get no job, and GPUs that nobody holds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from immutables import Map

from closeknit.api.reasons import ExclusionReason
from closeknit.api.text.printable import printable
from closeknit.cli.input.not_there import NotThere
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import Exclusion, NodeView
from closeknit.placement.values.sentences import count

_LEFT_OUT = Exclusion(ExclusionReason.NOT_READY, "left out, as is supposed")
_INDEXES = re.compile(r"[0-9]{1,4}(,[0-9]{1,4})*")


@dataclass(frozen=True, slots=True)
class Supposed:
    """Of a plan."""

    without: tuple[str, ...] = ()
    """Nodes that get no job; what runs there stays."""
    free: tuple[str, ...] = ()
    """GPUs that nobody holds: NODE, NODE/0,1 or a uuid."""

    def __str__(self) -> str:
        """One clause; empty without any."""
        told = [f"without {', '.join(self.without)}"] if self.without else []
        told += [f"as if {', '.join(self.free)} were free"] if self.free else []
        return printable(", and ".join(told))

    def of(self, cluster: Cluster) -> Cluster:
        """The cluster as supposed. Raises NotThere for a node or GPU that it does not have."""
        freed: dict[str, set[int]] = {}
        for words in self.free:
            name, gpus = _gpus(words, cluster)
            freed.setdefault(name, set()).update(gpus)
        found = cluster.freed(freed) if freed else cluster
        if not self.without:
            return found
        out = {name: replace(_node(name, found), exclusion=_LEFT_OUT) for name in self.without}
        return replace(found, nodes=Map(found.nodes).update(out))


NOTHING = Supposed()


def supposed(without: Sequence[str] | None, free: Sequence[str] | None) -> Supposed:
    """As it was asked for."""
    return Supposed(tuple(without or ()), tuple(free or ()))


def _node(name: str, cluster: Cluster) -> NodeView:
    view = cluster.nodes.get(name)
    if view is None:
        near = sorted(each for each in cluster.nodes if each.startswith(name[:3]))[:5]
        like = f"; there are {', '.join(near)}" if near else ""
        raise NotThere(printable(f"there is no node {name}{like}"))
    return view


def _gpus(words: str, cluster: Cluster) -> tuple[str, tuple[int, ...]]:
    if words.startswith("GPU-"):
        for view in cluster.nodes.values():
            for gpu in () if view.machine is None else view.machine.gpus:
                if gpu.uuid == words:
                    return view.name, (gpu.index,)
        raise NotThere(printable(f"no node has a GPU {words}"))
    name, slash, told = words.partition("/")
    view = _node(name, cluster)
    there = () if view.machine is None else tuple(gpu.index for gpu in view.machine.gpus)
    if not slash:
        return name, there
    if not _INDEXES.fullmatch(told):
        raise NotThere(printable(f"{words} names no GPUs: write NODE, NODE/0,1 or a uuid"))
    asked = tuple(map(int, told.split(",")))
    if missing := [index for index in asked if index not in there]:
        has = f"it has {count(len(there), 'GPU')}" if there else "nothing is known of its GPUs"
        raise NotThere(printable(f"node {name} has no GPU {missing[0]}; {has}"))
    return name, asked
