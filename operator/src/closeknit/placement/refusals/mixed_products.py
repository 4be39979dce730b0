"""The message for a gang that fits only over several kinds of machines, and does not take them."""

from collections import Counter

from closeknit.placement.candidates.binding import bindable
from closeknit.placement.candidates.excluded import excluded
from closeknit.placement.refusals.demand_words import RefusalCase
from closeknit.placement.values.sentences import count, listed

NAMED = 4  # so many kinds are named, those with the most GPUs; more are counted


def mixed_products(case: RefusalCase) -> str:
    """`needs 16 GPUs on machines of one kind …; 8 of NVIDIA-H200 are free on 1 node and 8 of …; over several …`."""
    gpus: Counter[str] = Counter()
    nodes: Counter[str] = Counter()
    for number, there in case.ground.counts.items():
        offer = case.ground.offers[number]
        if free := bindable(offer, case.request.binding):
            kind = listed(offer.terms.kind, "with")
            gpus[kind] += free * there
            nodes[kind] += there
    ranked = sorted(gpus, key=lambda kind: (-gpus[kind], kind))
    parts = [f"{gpus[kind]} of {kind} on {count(nodes[kind], 'node')}" for kind in ranked[:NAMED]]
    if others := ranked[NAMED:]:
        parts.append(f"{sum(gpus[kind] for kind in others)} of {count(len(others), 'other kind')}")
    enough = ", but not in shares that meet the other demands" if gpus[ranked[0]] >= case.request.gpus else ""
    return (
        f"needs {count(case.request.gpus, 'GPU')} on machines of one kind; free are {listed(parts, 'and')}{enough}; "
        f"over several kinds it would fit (topology.nvlink: Preferred){case.but_for()}"
        f"{excluded(case.cluster, case.request, case.ground)}"
    )
