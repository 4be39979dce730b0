"""Makes NCCL look at the machine, so that it writes its graph to NCCL_TOPO_DUMP_FILE; one process per GPU, by torchrun.

It imports nothing of the project, so that it runs in any PyTorch image.
"""

import os

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]


def main() -> None:
    """One small all-reduce."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    dist.all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
