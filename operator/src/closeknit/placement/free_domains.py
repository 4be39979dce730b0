"""How many domains of each level are free as a whole, and what a move of a gang gains of them."""

from collections.abc import Mapping

from closeknit.cluster.cluster import Cluster
from closeknit.placement.values.sentences import count, listed


def free_domains(cluster: Cluster) -> Mapping[str, int]:
    """Of each level, host among them, how many domains there are whose GPUs are all free. One with a node that takes no
    jobs is none."""
    busy: dict[str, set[str]] = {level: set() for level in cluster.levels}
    seen: dict[str, set[str]] = {level: set() for level in cluster.levels}
    for name, view in cluster.nodes.items():
        is_free = bool(view.usable) and view.open_gpus == len(view.usable)
        for level, domain in zip(cluster.levels, view.domains, strict=True):
            of = domain or name
            seen[level].add(of)
            if not is_free:
                busy[level].add(of)
    return {level: len(seen[level] - busy[level]) for level in cluster.levels}


def gain(before: Mapping[str, int], after: Mapping[str, int]) -> str | None:
    """What is freed as a whole, outermost level first, as words; None where that is nothing, or where something else is
    free no more."""
    more = {level: after[level] - before[level] for level in before}
    if min(more.values(), default=0) < 0 or not any(more.values()):
        return None
    return listed([count(number, level) for level, number in more.items() if number], "and")
