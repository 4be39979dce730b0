"""What `closeknit simulate -o json` prints."""

import json
from typing import Any

from closeknit.cli.plan.plan_json import scattered
from closeknit.simulation.account import ReplayAccount, Sample


def as_json(account: ReplayAccount) -> str:
    """One JSON object. Of ASCII alone, for it may be read on a terminal, and names in it come from files."""
    waits, foretold, locality = account.waits, account.foretold, account.locality
    body: dict[str, Any] = {
        "jobs": account.jobs,
        "gpus": account.gpus,
        "lastArrivalSeconds": round(account.came_s, 3),
        "endSeconds": round(account.ended_s, 3),
        "waits": None
        if waits is None
        else {
            "meanSeconds": round(waits.mean_s, 3),
            "p50Seconds": round(waits.p50_s, 3),
            "p95Seconds": round(waits.p95_s, 3),
            "longestSeconds": round(waits.longest_s, 3),
        },
        "estimatedStarts": None
        if foretold is None
        else {
            "jobs": foretold.jobs,
            "medianErrorShare": round(foretold.median_error, 3),
            "latestToSaid": round(foretold.latest, 2),
        },
        "preempted": {"times": account.stopped.times, "lostGPUSeconds": round(account.stopped.gpu_seconds, 3)},
        "elastic": {
            "startedSmaller": account.resizes.smaller_starts,
            "shrunk": account.resizes.shrunk,
            "grown": account.resizes.grown,
        },
        "moved": account.resizes.moved,
        "locality": {
            "jobs": locality.jobs,
            "bandwidthToIdeal": _rounded(locality.bandwidth_to_ideal),
            "atIdeal": _rounded(locality.at_ideal),
            "domainsPerJob": {level: round(count, 3) for level, count in locality.domains.items()},
        },
        "allocated": round(account.allocated, 4),
        "scattered": round(account.scattered, 4),
        "overTime": [_sample(sample) for sample in account.samples],
        "neverBegun": [
            {"line": job.number, "gpus": job.gpus, "reason": refusal.reason, "message": refusal.message}
            for job, refusal in account.never.items()
        ],
    }
    return json.dumps(body, indent=2)


def _sample(sample: Sample) -> dict[str, Any]:
    return {
        "atSeconds": round(sample.at_s, 3),
        "allocatedGPUs": round(sample.allocated_gpus, 3),
        "waitingJobs": sample.waiting_jobs,
        **scattered(sample.free),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
