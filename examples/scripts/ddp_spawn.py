"""Data parallel training without torchrun: `python ddp_spawn.py` starts a process for each GPU of its Pod itself.

Global ranks count on from CLOSEKNIT_FIRST_RANK, so that nodes may have different numbers of GPUs.
"""

import json
import os
import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(local_rank: int) -> None:
    rank, world_size = int(os.environ["CLOSEKNIT_FIRST_RANK"]) + local_rank, int(os.environ["CLOSEKNIT_WORLD_SIZE"])
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    # MASTER_ADDR and MASTER_PORT are set.
    dist.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=world_size)
    facts = {"rank": rank, "world_size": world_size, "local_rank": local_rank, "host": socket.gethostname()}
    print(json.dumps(facts), flush=True)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 1).to(device), device_ids=[local_rank] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(10):
        loss = model(torch.randn(32, 16, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, nprocs=int(os.environ["CLOSEKNIT_LOCAL_WORLD_SIZE"]))
