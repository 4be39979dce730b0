"""A rank of torchrun: meets the others over gloo, adds up all ranks, and says what it sees."""

import os

import torch  # type: ignore[import-not-found] # the Pod's Python has it
from report import report  # type: ignore[import-not-found] # they are in one folder there
from torch import distributed

distributed.init_process_group("gloo")
total = torch.tensor(float(distributed.get_rank()))
distributed.all_reduce(total)
report(distributed.get_rank(), distributed.get_world_size(), int(os.environ["LOCAL_RANK"]), sum=total.item())
distributed.destroy_process_group()
