"""A rank of torchrun: meets the others over gloo, adds up all ranks, and says what it sees."""

import os

import torch
import torch.distributed as distributed
from report import report

distributed.init_process_group("gloo")
total = torch.tensor(float(distributed.get_rank()))
distributed.all_reduce(total)
report(distributed.get_rank(), distributed.get_world_size(), int(os.environ["LOCAL_RANK"]), sum=total.item())
distributed.destroy_process_group()
