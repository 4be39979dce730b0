"""GPUs by holder on the nodes that one kind of request may use, version by version."""

from collections.abc import Callable, Iterator, Mapping

from closeknit.cluster.forest.group import Group
from closeknit.cluster.node.node import Holder, NodeView
from closeknit.cluster.store.difference import difference

Members = Callable[[], Iterator[tuple[Group, tuple[str, ...]]]]
"""(group, nodes of it) of all nodes that requests of this kind may use, in one version of a forest."""
_NO_NODES: Mapping[str, NodeView] = {}


def _nowhere() -> Iterator[tuple[Group, tuple[str, ...]]]:
    return iter(())


class HeldGpus:
    """How many GPUs each holder has there, without unusable ones; it remembers the last version.

    Whether requests of one kind may use a node follows from its view: from one version to the next only nodes with
    other views are counted again, for a walk over all of them takes most of the time of a refusal's words.
    """

    def __init__(self, note: Callable[[int], None]) -> None:
        """`note` is told of how many nodes a count looks at."""
        self._note = note
        self._nodes = _NO_NODES
        self._members: Members = _nowhere
        self._found: dict[Holder, int] = {}

    def on(self, nodes: Mapping[str, NodeView], members: Members) -> Mapping[Holder, int]:
        """GPUs by holder on these members, which have these views."""
        if nodes is not self._nodes:
            changed = difference(self._nodes, nodes)
            moved = frozenset([*changed.stored, *changed.gone])
            found: dict[Holder, int] = {}
            if 2 * len(moved) > len(nodes):
                self._note(len(nodes))
                _count(found, nodes, members, None, 1)
            else:
                self._note(len(moved))
                found |= self._found
                _count(found, self._nodes, self._members, moved, -1)
                _count(found, nodes, members, moved, 1)
            self._nodes, self._members, self._found = nodes, members, found
        return self._found


def _count(
    found: dict[Holder, int], nodes: Mapping[str, NodeView], members: Members, only: frozenset[str] | None, by: int
) -> None:
    """Adds the GPUs on the members, or takes them away: on these alone, where `only` names any."""
    for group, names in members():
        if _is_unheld(group):
            continue
        for name in names if only is None else only.intersection(names):
            for holder, gpus in held(group, nodes[name]):
                left = found.get(holder, 0) + by * gpus
                if left:
                    found[holder] = left
                else:
                    del found[holder]


def _is_unheld(group: Group) -> bool:
    """Whether all GPUs of these nodes are free: of replicated ones others may have replicas."""
    every = 0 if group.kind is None else (1 << len(group.kind.products)) - 1
    return group.free == every and not _is_counted(group)


def _is_counted(group: Group) -> bool:
    """Whether a device plugin has given GPUs of which nobody knows which they are."""
    return group.plugin is not None and group.plugin.unnamed > 0


def held(group: Group, view: NodeView) -> list[tuple[Holder, int]]:
    """The holders of GPUs of a node of this group, each with so many of them; one may be named twice."""
    found = [*view.unnamed.items()] if _is_counted(group) else []
    broken = {index for index, _ in group.faults}
    held = view.holders
    there = [holder for index, holder in held.items() if index not in broken] if broken else held.values()
    last: Holder | None = None
    gpus = 0
    for holder in there:  # most often one holder has them all
        if holder is not last:
            if last is not None:
                found.append((last, gpus))
            last, gpus = holder, 0
        gpus += 1
    if last is not None:
        found.append((last, gpus))
    return found
