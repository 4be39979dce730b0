"""One process that drives all GPUs of one node: `python data_parallel.py`. DistributedDataParallel is faster; this is
for scripts that are written this way. Without a GPU the model runs as it is."""

import json
import os
import socket

import torch
from torch import nn


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.DataParallel(nn.Linear(16, 1).to(device))  # on all GPUs that it sees, in their order
    facts = {
        "rank": 0,
        "world_size": 1,
        "gpus": int(os.environ["CLOSEKNIT_LOCAL_WORLD_SIZE"]),
        "host": socket.gethostname(),
        "visible": os.environ.get("NVIDIA_VISIBLE_DEVICES", ""),
    }
    print(json.dumps(facts), flush=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(10):
        loss = model(torch.randn(64, 16, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(json.dumps({"loss": round(loss.item(), 4)}), flush=True)


if __name__ == "__main__":
    main()
