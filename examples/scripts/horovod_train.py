"""Data parallel training by Horovod: `horovodrun -np 8 python horovod_train.py`."""

import json
import socket

import horovod.torch as hvd
import torch
from torch import nn


def main() -> None:
    hvd.init()
    facts = {
        "rank": hvd.rank(),
        "world_size": hvd.size(),
        "local_rank": hvd.local_rank(),
        "host": socket.gethostname(),
    }
    print(json.dumps(facts), flush=True)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", hvd.local_rank()) if on_gpu else torch.device("cpu")
    torch.manual_seed(0)
    model = nn.Linear(16, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for _ in range(10):
        loss = model(torch.randn(32, 16, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if hvd.rank() == 0:
        print(json.dumps({"loss": round(loss.item(), 4)}), flush=True)


if __name__ == "__main__":
    main()
