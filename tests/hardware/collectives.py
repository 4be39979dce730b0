"""What every collective reaches on the GPUs of this process group: JSON lines, the first rank's; run by torchrun.

    torchrun --standalone --nproc-per-node 4 collectives.py

It imports nothing of the project, so that it runs in any PyTorch image. On the way it says what each rank sees. Where
START names files, it measures all-reduce alone (on one GPU a copy), for WINDOW_S after each of them is there, in their
order. A file holds a time in seconds since 1970, and the window begins then: two jobs that are given one file are
measured in the same seconds. SHUFFLED deals the ranks out again: neighbours are then on different nodes.

Bus bandwidth is bytes / seconds x factor, bytes being the whole tensor's: 2 (n - 1) / n for all-reduce, (n - 1) / n for
all-gather, reduce-scatter, gather, scatter and all-to-all, 1 for broadcast, reduce and send/recv, as nccl-tests counts.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]

GPUS = torch.cuda.is_available()
BYTES = int(os.environ.get("BYTES", str(1 << 30 if GPUS else 1 << 20)))
WARM_UPS, ROUNDS, ROUND_S = 5, 3, 0.3
CALLS_AT_MOST = 200
BARRIERS = 200
START_TIMEOUT_S = 120.0


def main() -> None:
    """Says what this rank sees, and measures."""
    local = int(os.environ["LOCAL_RANK"])
    if GPUS:
        torch.cuda.set_device(local)
    began = time.monotonic()
    if "SHUFFLED" in os.environ:
        os.environ["RANK"] = str(shuffled(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])))
    dist.init_process_group("nccl" if GPUS else "gloo")
    measure = Measure()
    seen: list[Any] = [None] * measure.size
    dist.all_gather_object(seen, _seen(local))
    measure.say(ranks=seen)
    dist.all_reduce(measure.tensor)
    measure.finish()
    measure.say(ready_s=round(time.monotonic() - began, 1), versions=_versions())
    starts = os.environ.get("START", "").split()
    for start in starts:
        measure.window(Path(start), float(os.environ["WINDOW_S"]))
    if not starts:
        measure.all()
    dist.destroy_process_group()


def shuffled(rank: int, size: int) -> int:
    """The first half gets the even ranks, the second the odd ones."""
    half = size // 2
    return 2 * rank if rank < half else 2 * (rank - half) + 1


def _seen(local: int) -> dict[str, Any]:
    """What a rank finds around it: the plan is held against it."""
    seen: dict[str, Any] = {"rank": dist.get_rank(), "local": local, "host": socket.gethostname(), "uid": os.getuid()}
    seen["threads"] = os.environ.get("OMP_NUM_THREADS")
    seen["group_rank"] = os.environ.get("GROUP_RANK")
    if GPUS:
        seen["uuid"] = f"GPU-{torch.cuda.get_device_properties(local).uuid}"
        seen["gpus"] = torch.cuda.device_count()
    return seen


def _versions() -> dict[str, str]:
    found = {"torch": torch.__version__}
    if GPUS:
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["gpu"] = torch.cuda.get_device_name(0)
    return found


class Measure:
    """One tensor of BYTES in every rank, and the collectives over it."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda", torch.cuda.current_device()) if GPUS else torch.device("cpu")
        count = BYTES // 4 // self.size * self.size
        self.tensor = torch.zeros(count, dtype=torch.float32, device=self.device)
        self.other = torch.zeros(count, dtype=torch.float32, device=self.device)
        self.part = torch.zeros(count // self.size, dtype=torch.float32, device=self.device)

    def say(self, **facts: object) -> None:
        """One JSON line of the first rank."""
        if self.rank == 0:
            print(json.dumps(facts), flush=True)

    def finish(self) -> None:
        """Until the device has done what it was told."""
        if GPUS:
            torch.cuda.synchronize()

    def all(self) -> None:
        """Each collective in turn; one that the backend lacks is said to be lacking."""
        share = (self.size - 1) / self.size
        calls: dict[str, tuple[float, Callable[[], object]]] = {
            "all-reduce": (2 * share, lambda: dist.all_reduce(self.tensor)),
            "all-gather": (share, lambda: dist.all_gather_into_tensor(self.other, self.part)),
            "reduce-scatter": (share, lambda: dist.reduce_scatter_tensor(self.part, self.tensor)),
            "broadcast": (1.0, lambda: dist.broadcast(self.tensor, 0)),
            "reduce": (1.0, lambda: dist.reduce(self.tensor, 0)),
            "gather": (share, lambda: dist.gather(self.part, self._parts(), 0)),
            "scatter": (share, lambda: dist.scatter(self.part, self._parts(), 0)),
            "all-to-all": (share, lambda: dist.all_to_all_single(self.other, self.tensor)),
            "send/recv": (1.0, self._to_neighbour),
        }
        for name, (factor, call) in calls.items():
            try:
                seconds = self._seconds(call)
            except (RuntimeError, AttributeError, TypeError) as error:
                self.say(collective=name, lacking=str(error).splitlines()[0][:200])
                continue
            self.say(collective=name, bus_gb_s=round(self.tensor.numel() * 4 / seconds * factor / 1e9, 2))
        self.say(collective="barrier", microseconds=round(self._barrier_s() * 1e6, 1))

    def window(self, start: Path, seconds: float) -> None:
        """All-reduces from the time in the file on, for so long."""
        name, factor, call = self._of_window()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not start.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {start}")
            time.sleep(0.05)
        begin = torch.tensor([float(start.read_text())], dtype=torch.float64, device=self.device)
        dist.broadcast(begin, 0)
        time.sleep(max(0.0, begin.item() - time.time()))
        calls, began = 0, time.perf_counter()
        going = torch.ones(1, device=self.device)
        while going.item():
            for _ in range(20):
                call()
            self.finish()
            calls += 20
            going.fill_(float(time.perf_counter() - began < seconds))
            dist.broadcast(going, 0)
        took = time.perf_counter() - began
        bandwidth = factor * self.tensor.numel() * 4 * calls / took / 1e9
        self.say(collective=name, bus_gb_s=round(bandwidth, 2), window=start.name)

    def _of_window(self) -> tuple[str, float, Callable[[], object]]:
        """Of one GPU alone a copy inside its memory: an all-reduce has nothing to move there."""
        if self.size == 1:
            return "copy", 1.0, lambda: self.other.copy_(self.tensor)
        return "all-reduce", 2 * (self.size - 1) / self.size, lambda: dist.all_reduce(self.tensor)

    def _seconds(self, call: Callable[[], object]) -> float:
        """Seconds of one call: the best mean of several rounds."""
        started = time.perf_counter()
        for _ in range(WARM_UPS):
            call()
        self.finish()
        each = torch.tensor([(time.perf_counter() - started) / WARM_UPS], device=self.device)
        dist.all_reduce(each, op=dist.ReduceOp.MAX)
        calls = max(2, min(CALLS_AT_MOST, int(ROUND_S / each.item())))
        means = []
        for _ in range(ROUNDS):
            self.finish()
            dist.barrier()
            started = time.perf_counter()
            for _ in range(calls):
                call()
            self.finish()
            mean = torch.tensor([(time.perf_counter() - started) / calls], device=self.device)
            dist.all_reduce(mean, op=dist.ReduceOp.MAX)
            means.append(float(mean.item()))
        return min(means)

    def _barrier_s(self) -> float:
        dist.barrier()
        started = time.perf_counter()
        for _ in range(BARRIERS):
            dist.barrier()
        return (time.perf_counter() - started) / BARRIERS

    def _parts(self) -> list[Any] | None:
        return list(self.other.chunk(self.size)) if self.rank == 0 else None

    def _to_neighbour(self) -> None:
        """Every rank sends to the next and receives from the one before."""
        to, come = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        operations = [dist.P2POp(dist.isend, self.tensor, to), dist.P2POp(dist.irecv, self.other, come)]
        for each in dist.batch_isend_irecv(operations):
            each.wait()


if __name__ == "__main__":
    main()
