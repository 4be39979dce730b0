"""Data parallel training under torchrun: `torchrun ddp.py`. On GPUs over NCCL, without any over gloo.

Every rank prints one line of JSON about itself, and rank 0 the loss.
"""

import json
import os
import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    local_rank = int(os.environ["LOCAL_RANK"])
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    facts = {
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "local_rank": local_rank,
        "host": socket.gethostname(),
        "visible": os.environ.get("NVIDIA_VISIBLE_DEVICES", ""),
    }
    print(json.dumps(facts), flush=True)

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 1).to(device), device_ids=[local_rank] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(1 + dist.get_rank())  # each rank has data of its own
    truth = torch.arange(16, dtype=torch.float32, device=device).unsqueeze(1) / 16
    loss = torch.zeros(())
    for _ in range(50):
        inputs = torch.randn(32, 16, device=device)
        loss = nn.functional.mse_loss(model(inputs), inputs @ truth)
        optimizer.zero_grad()
        loss.backward()  # gradients are averaged over all ranks while this runs
        optimizer.step()
    if dist.get_rank() == 0:
        print(json.dumps({"loss": round(loss.item(), 4)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
