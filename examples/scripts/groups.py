"""The process groups of hybrid parallelism: `torchrun groups.py --tensor 2 --pipeline 2 --expert 2`.

Ranks are numbered as Megatron-LM does (tensor fastest, then context, expert or data, pipeline), which is what
spec.parallelism places by: a tensor x context group is a run of neighbouring ranks inside one NVLink island. Give the
same degrees here and there. Every rank prints its groups, and checks each by an all-reduce over it.
"""

import argparse
import json
import socket
from collections.abc import Sequence

import torch
import torch.distributed as dist

AXES = ("tensor", "context", "data", "pipeline")  # the fastest first


def groups(sizes: Sequence[int], kept: Sequence[int]) -> list[list[int]]:
    """All groups of ranks that differ in the axes `kept` alone, each in rank order."""
    world = 1
    for size in sizes:
        world *= size
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in range(world):
        place, rest = [], rank
        for size in sizes:
            place.append(rest % size)
            rest //= size
        found.setdefault(tuple(p for axis, p in enumerate(place) if axis not in kept), []).append(rank)
    return list(found.values())


def all_groups(world: int, tensor: int, context: int, pipeline: int, expert: int) -> dict[str, list[list[int]]]:
    """Every kind of group, by its name."""
    data = world // (tensor * context * pipeline)
    sizes = (tensor, context, data, pipeline)
    found = {name: groups(sizes, [axis]) for axis, name in enumerate(AXES)}
    # Experts are spread over what is not tensor or pipeline: expert = (rank // tensor) % expert.
    found["expert"] = groups((tensor, expert, context * data // expert, pipeline), [1])
    found["tensor x context"] = groups(sizes, [0, 1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("tensor", "context", "pipeline", "expert"):
        parser.add_argument(f"--{name}", type=int, default=1)
    degrees = vars(parser.parse_args())
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
    mine = {}
    for name, kind in all_groups(world, **degrees).items():
        for ranks in kind:
            group = dist.new_group(ranks)  # every rank makes every group
            if rank in ranks:
                total = torch.tensor([float(rank)], device=device)
                dist.all_reduce(total, group=group)
                assert total.item() == sum(ranks), name
                mine[name] = ranks
    print(json.dumps({"rank": rank, "world_size": world, "groups": mine, "host": socket.gethostname()}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
