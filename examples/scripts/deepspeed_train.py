"""Data parallel training by DeepSpeed's ZeRO, stage 1; its launcher starts one process for each GPU."""

import argparse
import json
import os
import socket

import deepspeed
import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)  # the launcher passes it
    parser.parse_args()
    on_gpu = torch.cuda.is_available()
    deepspeed.init_distributed("nccl" if on_gpu else "gloo")
    rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    facts = {
        "rank": rank,
        "world_size": world_size,
        "local_rank": int(os.environ["LOCAL_RANK"]),
        "host": socket.gethostname(),
    }
    print(json.dumps(facts), flush=True)
    torch.manual_seed(0)
    model = nn.Linear(16, 1)
    config = {
        "train_micro_batch_size_per_gpu": 32,
        "optimizer": {"type": "SGD" if not on_gpu else "Adam", "params": {"lr": 0.05}},
        "zero_optimization": {"stage": 1 if on_gpu else 0},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for _ in range(10):
        loss = engine(torch.randn(32, 16, device=engine.device)).square().mean()
        engine.backward(loss)
        engine.step()
    if rank == 0:
        print(json.dumps({"loss": round(loss.item(), 4)}), flush=True)


if __name__ == "__main__":
    main()
