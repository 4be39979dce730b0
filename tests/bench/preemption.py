"""Whether preemption ends anybody in vain, or nobody where it could, on random clusters: one JSON line.

    PYTHONPATH=tests uv run python -m bench.preemption [CLUSTERS]

Every choice among at most nine jobs is tried by placement itself. `wasted` counts jobs that end though the urgent one
fits without, or with one of them back; `false_cannot` urgent jobs for which nobody ends though somebody could.
`lost_gpu_time_ratio_to_exact` is what all that end lose, by the cheapest choices there are: of nine jobs or fewer, and
for `beyond_exact` of 13 to 15, where the search is bounded.
"""

import json
import sys

from closeknit.lifecycle.verdict import Await
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.schedule import schedule
from scenarios.crowded import TABLES, URGENT, cost, fits, least_cost, site
from scenarios.story import NOW

CLUSTERS = 1000
FEW, MANY = range(1, 10), range(19, 27)  # jobs that come; fewer find a place
BEYOND = range(13, 16)  # of lower priority


def figures(seeds: range, jobs: range, low_jobs: range) -> dict[str, float | int]:
    """Of the clusters of these seeds with so many jobs of lower priority."""
    preempted = wasted = false_cannot = lost = least = 0
    for seed in seeds:
        cluster, low = site(seed, jobs)
        if len(low) not in low_jobs:
            continue
        verdict = schedule(cluster, TABLES, Memory(is_rationed=False), NOW)[URGENT]
        if fits(cluster, ()):
            wasted += isinstance(verdict, Await)
            continue
        exact = least_cost(cluster, low)
        if not isinstance(verdict, Await):
            false_cannot += exact is not None
            continue
        names = {each.job.name for each in verdict.awaits}
        gone = [each for each in low if each.name in names]
        wasted += sum(fits(cluster, [each for each in gone if each is not other]) for other in gone)
        wasted += not fits(cluster, gone)
        preempted, lost, least = preempted + 1, lost + cost(gone), least + (exact or 0)
    ratio = round(lost / least, 3) if least else 1.0
    return {
        "preempted": preempted,
        "wasted": wasted,
        "false_cannot": false_cannot,
        "lost_gpu_time_ratio_to_exact": ratio,
    }


def main() -> None:
    """Prints the figures."""
    clusters = int(sys.argv[1]) if len(sys.argv) > 1 else CLUSTERS
    found = {
        "bench": "preemption",
        "clusters": clusters,
        "preemption": figures(range(clusters), FEW, range(10)),
        "beyond_exact": figures(range(clusters // 20), MANY, BEYOND),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
