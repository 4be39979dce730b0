"""Bus bandwidth of an all-reduce over every subset of a machine's GPUs, one JSON line each; by hand, on real GPUs.

torchrun --standalone --nproc-per-node 4 tests/bench/all_reduce.py

What it found: docs/measurements. It imports nothing of the project, so that it runs in any PyTorch image.
"""

import json
import time
from itertools import combinations

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]

BYTES = 1 << 30
WARM_UPS, ROUNDS, REPEATS = 5, 3, 20


def mean_s(group: object, tensor: object) -> float:
    """Seconds of one all-reduce: the best mean of several rounds."""
    for _ in range(WARM_UPS):
        dist.all_reduce(tensor, group=group)
    means = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        dist.barrier(group=group)
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(REPEATS):
            dist.all_reduce(tensor, group=group)
        torch.cuda.synchronize()
        means.append((time.perf_counter() - started) / REPEATS)
    return min(means)


def main() -> None:
    """Measures; the first rank of each subset prints."""
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    for size in range(2, world_size + 1):
        for ranks in combinations(range(world_size), size):
            group = dist.new_group(list(ranks))
            if rank in ranks:
                tensor = torch.zeros(BYTES // 4, dtype=torch.float32, device="cuda")
                bus_gb_s = 2 * (size - 1) / size * BYTES / mean_s(group, tensor) / 1e9
                if rank == ranks[0]:
                    print(json.dumps({"gpus": ranks, "bus_gb_s": round(bus_gb_s, 1)}), flush=True)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
