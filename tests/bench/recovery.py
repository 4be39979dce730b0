"""`make bench-recovery`: how soon closeknit is back after something has died. The last line is one JSON object.

    PYTHONPATH=tests uv run python -m bench.recovery [--quick] [--only PART]

Each of `PARTS` gives some of its keys:
    takeovers   two operators with the chart's rights on a real control plane with a gang that runs. `takeover_kill_…`
                and `takeover_term_…` are seconds from SIGKILL, or SIGTERM, to the leader until its successor has
                written why a job waits that is submitted with the signal: the Lease, what was written before, a
                decision and its write. The one that ended is replaced each time, and the signal comes at any moment
                between two renewals.
    restarts_in_place  a gang of two ranks on two real kubelets, as root: `restart_in_place_seconds` from the exit of
                one to the start of the last of the next run, and what a healthy gang's start pays for it.
    node_losses  the same with a third kubelet: `node_loss_seconds_p95` from the death of kubelet, container runtime and
                ranks of a node until all Pods of the gang are bound, to the nodes that are left and to the third.
    false_restarts  gangs that were ended for kubelets that are silent for 5 to 240 s while their ranks train on: 1,000
                seeded lives by a simulated clock.
    swaps       the operator's writes while a gang of 512 whole nodes, which restarts in place, replaces one of them:
                bench.swap.
"""

import argparse
import json
import random
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping

from bench.in_place import restarts_in_place
from bench.node_loss import false_restarts, node_losses
from bench.swap import swaps
from closeknit.kube.lease import RETRY_S
from harness.operator_bed import ON_PLUGIN
from harness.replicas import Replicas, replicas

KILLS, QUICK_KILLS = 50, 5
Figures = Mapping[str, float]


def takeovers(*, is_quick: bool) -> Figures:
    """Leaders that are killed, and leaders that are told to end."""
    kills = QUICK_KILLS if is_quick else KILLS
    with replicas() as bed:
        bed.begin("takeovers")
        bed.submit(**ON_PLUGIN)
        bed.wait_for_state("Running")
        told = _taken_over(bed, signal.SIGTERM, kills)
        killed = _taken_over(bed, signal.SIGKILL, kills)
        assert bed.job()["status"]["state"] == "Running" and bed.job()["status"]["attempt"] == 1
    return {
        "takeovers": 2 * kills,
        "takeover_term_seconds_median": round(statistics.median(told), 2),
        "takeover_term_seconds_max": round(max(told), 2),
        "takeover_kill_seconds_median": round(statistics.median(killed), 2),
        "takeover_kill_seconds_max": round(max(killed), 2),
    }


def _taken_over(bed: Replicas, how: signal.Signals, kills: int) -> list[float]:
    chance = random.Random(how)  # noqa: S311 - to be repeated
    took_s = []
    for number in range(kills):
        time.sleep(chance.uniform(0.0, RETRY_S))
        epoch = bed.lease()["leaseTransitions"]
        took_s.append(bed.takeover_s(bed.leader(), how, f"waits-{how.name.lower()}-{number}"))
        assert bed.lease()["leaseTransitions"] == epoch + 1, "it was the old leader that wrote"
        print(f"{how.name} {number + 1} of {kills}: {took_s[-1]:.2f} s", file=sys.stderr, flush=True)
    return took_s


PARTS: tuple[Callable[..., Figures], ...] = (takeovers, restarts_in_place, node_losses, false_restarts, swaps)


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="bench.recovery")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_KILLS} kills of each kind instead of {KILLS}")
    names = [part.__name__ for part in PARTS]
    parser.add_argument("--only", choices=names, action="append", help="one part, or several, instead of all")
    given = parser.parse_args()
    figures: dict[str, float | str] = {"bench": "recovery"}
    for part in PARTS:
        if given.only is None or part.__name__ in given.only:
            figures |= part(is_quick=given.quick)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
