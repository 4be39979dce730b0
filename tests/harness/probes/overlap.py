"""How much of what a script copies to its GPU travels while that GPU computes: `torchrun overlap.py SCRIPT`.

Runs the script under PyTorch's profiler, and prints one line of JSON for each rank: how many copies from the host there
were, and how many of them shared time with a kernel. Without a GPU there are none.
"""

import json
import os
import runpy
import sys
from bisect import bisect_right

import torch
from torch.profiler import ProfilerActivity, profile


def overlapping(copies: list[tuple[float, float]], kernels: list[tuple[float, float]]) -> int:
    """How many of the copies share time with a kernel; both are (start, end) in one unit."""
    kernels.sort()
    ends, latest = [], 0.0  # the latest end of all kernels up to each
    for _, end in kernels:
        latest = max(latest, end)
        ends.append(latest)
    starts = [start for start, _ in kernels]
    found = 0
    for start, end in copies:
        before = bisect_right(starts, end)
        found += before > 0 and ends[before - 1] > start
    return found


def main() -> None:
    """The script runs as if it were called itself."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        runpy.run_path(sys.argv[1], run_name="__main__")
    copies, kernels = [], []
    for event in seen.events() if torch.cuda.is_available() else []:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            span = (event.time_range.start, event.time_range.end)
            if "HtoD" in event.name:
                copies.append(span)
            elif "Mem" not in event.name:
                kernels.append(span)
    told = {"rank": int(os.environ["RANK"]), "copies": len(copies), "overlapping": overlapping(copies, kernels)}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
