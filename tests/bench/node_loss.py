"""How soon a gang's Pods are bound again after one of its nodes has died, on three real kubelets; and that no blip is
taken for a death.
"""

import random
import statistics
import sys
import time
from collections.abc import Mapping

from bench.in_place import RANKS, standing_jobs
from node.jobs import Jobs
from scenarios.outages import Outages, blips, gang

KILLS, QUICK_KILLS = 50, 5
BLIPS, QUICK_BLIPS = 1000, 100
# A rank that trains until it is told to fail.
SCRIPT = """
until [ -e /reports/fail ]; do sleep 0.1; done
rm /reports/fail
exit 3
"""


def node_losses(*, is_quick: bool) -> Mapping[str, float]:
    """Seconds from the death of a node until all Pods of its gang are bound again. The node that dies is any of the
    two, at any moment between two renewals of its Lease, and it is back before the next one dies. By turns the rank on
    the other one hangs, as beside a machine without power, and fails at once, as where its connections are ended."""
    kills = QUICK_KILLS if is_quick else KILLS
    chance = random.Random(kills)  # noqa: S311 - to be repeated
    took_s = []
    with standing_jobs() as jobs, jobs.stand.spare() as stand:
        jobs.begin("node-loss")
        jobs.train(["sh", "-c", SCRIPT], gpus=8 * len(RANKS), topology={"gpusPerNode": 8}, restart={"limit": 1})
        jobs.wait_for_state("Running")
        for number in range(kills):
            time.sleep(chance.uniform(10, 20))
            rank = chance.randrange(len(RANKS))
            names = [str(name) for name in jobs.nodes_of_pods()]
            node, other = ({each.site.name: each for each in stand.nodes}[names[each]] for each in (rank, 1 - rank))
            began = time.monotonic()
            node.die()
            if number % 2:
                (other.reports / "fail").touch()
            wait_for_replacement(jobs, node.site.name)
            took_s.append(time.monotonic() - began)
            what = "and the other rank fails" if number % 2 else "and the other rank hangs"
            _say(f"death {number + 1} of {kills}, of node rank {rank}'s node, {what}: {took_s[-1]:.1f} s")
            node.revive()
            jobs.cluster.wait_for(lambda: len(jobs.live_pods()) == len(RANKS), "its old Pods to be gone", 120)
            jobs.cluster.wait_for(lambda: jobs.job()["status"].get("state") == "Running", "the gang to run", 120)
            _say(f"  {jobs.job()['status']['attempts'][-1]['phases']}")
        ends = jobs.job()["status"]["attempts"]
        assert {(end["reason"], end["charged"]) for end in ends} == {("NodeLost", False)}, ends
    return {
        "node_losses": kills,
        "node_loss_seconds_median": round(statistics.median(took_s), 1),
        "node_loss_seconds_p95": round(sorted(took_s)[-1 - len(took_s) // 20], 1),
        "node_loss_seconds_max": round(max(took_s), 1),
    }


def wait_for_replacement(jobs: Jobs, dead: str) -> None:
    """Until every Pod that the gang is to have is bound, none of them to this node."""

    def are_bound() -> bool:
        status = jobs.job()["status"]
        booked = [each["name"] for each in (status.get("placement") or {}).get("nodes", [])]
        bound = [
            pod["spec"].get("nodeName")
            for pod in jobs.all("pods")
            if "deletionTimestamp" not in pod["metadata"] and pod["spec"].get("activeDeadlineSeconds") is None
        ]
        return len(booked) == len(RANKS) and dead not in booked and sorted(map(str, bound)) == sorted(booked)

    jobs.cluster.wait_for(are_bound, f"others than {dead} to be bound", 120)


def false_restarts(*, is_quick: bool) -> Mapping[str, float]:
    """Gangs that were ended for kubelets that were silent for 5 to 240 s while their ranks trained on: in the whole
    lifecycle, by a simulated clock."""
    seeds = QUICK_BLIPS if is_quick else BLIPS
    ended = 0
    for seed in range(seeds):
        story = gang(4, spare=2)
        Outages(story, random.Random(seed), blips(seed, [f"gpu-{number}" for number in range(1, 5)])).advance(360)  # noqa: S311
        ended += len(story.status().attempts)
    _say(f"{seeds} blips: {ended} restarts")
    return {"blips": seeds, "false_restarts": ended}


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
