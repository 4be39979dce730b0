"""The example of this name without DeepSpeed's engine, which wants PyTorch 2: its launcher, its
way to meet, its sum."""

import json
import os
import socket

import deepspeed  # type: ignore[import-not-found] # the Pod's Python has it
import torch

deepspeed.ops.__compatible_ops__.clear()  # it would compile one for CPUs, for a minute on each node
deepspeed.init_distributed("gloo")
rank, world_size = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
total = torch.tensor(float(rank))
deepspeed.comm.all_reduce(total)
assert total.item() == sum(range(world_size))
facts = {"rank": rank, "world_size": world_size, "local_rank": int(os.environ["LOCAL_RANK"])}
print(json.dumps({**facts, "host": socket.gethostname()}), flush=True)
