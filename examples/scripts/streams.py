"""Input that is copied while the GPU computes: `torchrun streams.py`.

Loader processes prepare batches on the CPUs that the Pod was given, a CUDA stream of its own copies the next batch from
pinned memory while the default stream computes on this one, and gradients are reduced behind the backward pass. Without
a GPU the same loop runs, and there is nothing to overlap.
"""

import json
import os
import socket
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Samples(Dataset):
    """Made-up samples, which cost a CPU something."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(256, generator=generator).sort().values


class Ahead:
    """Batches on the GPU, each copied while the one before is computed on."""

    def __init__(self, batches: Iterable[Tensor], device: torch.device) -> None:
        self._batches = iter(batches)
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._next = self._copied()

    def __iter__(self) -> Iterator[Tensor]:
        while self._next is not None:
            batch = self._next
            if self._stream is not None:
                torch.cuda.current_stream().wait_stream(self._stream)  # the copy has ended
                batch.record_stream(torch.cuda.current_stream())  # its memory is in use until this stream is done
            self._next = self._copied()
            yield batch

    def _copied(self) -> Tensor | None:
        batch = next(self._batches, None)
        if batch is None or self._stream is None:
            return batch
        with torch.cuda.stream(self._stream):
            return batch.to(self._device, non_blocking=True)


def main() -> None:
    local_rank = int(os.environ["LOCAL_RANK"])
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    # One thread computes and one steers NCCL; the other CPUs of this rank, of those that the Pod was given, load.
    cpus = len(os.sched_getaffinity(0)) // int(os.environ["LOCAL_WORLD_SIZE"])
    workers = max(1, min(cpus, int(os.environ.get("OMP_NUM_THREADS", "1"))) - 2)
    samples = Samples()
    loader = DataLoader(
        samples, 64, sampler=DistributedSampler(samples), num_workers=workers, pin_memory=on_gpu, drop_last=True
    )
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    trainer = DistributedDataParallel(model, device_ids=[local_rank] if on_gpu else None)
    optimizer = torch.optim.SGD(trainer.parameters(), lr=0.01)
    batches = 0
    for batch in Ahead(loader, device):
        loss = trainer(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batches += 1
    facts = {"rank": dist.get_rank(), "loaders": workers, "batches": batches, "host": socket.gethostname()}
    print(json.dumps(facts), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
