"""Hangs on real GPUs: two ranks that all-reduce by NCCL pause, save, stop and lag, and what the sidecar says of it.

    PYTHONPATH=node-agent/src:tests python3 -m hardware.hangs OUT

The ranks know nothing of it. `OUT/hangs.json` has a row for each thing that was done: whether and when who was named.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from closeknit.sidecar.hang import Hang, Witness, hang
from closeknit.sidecar.ras import NoReport, asked

TICK_S = 5.0
ASKS = 4  # a tick: chance decides which process answers, and a stopped one does not
BEHIND_FOR_S = 60.0  # of the job whose ranks lag: its own deadline
SAFE = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
TRAINER = """
import os, sys, time, torch, torch.distributed as dist
rank, folder = int(os.environ["RANK"]), sys.argv[1]
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
data = torch.ones(16 << 20, device="cuda")
step = 0
while True:
    try:
        pause = open(f"{folder}/{rank}").read()
    except OSError:
        pause = ""
    if pause:
        time.sleep(0.1)
        continue
    dist.all_reduce(data)
    torch.cuda.synchronize()
    step += 1
    time.sleep(0.02)
"""


@dataclass
class Ranks:
    """Two ranks in training."""

    folder: Path
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self) -> None:
        program = self.folder / "trainer.py"
        program.write_text(TRAINER)
        for rank in (0, 1):
            names = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29411"}
            environment = {**os.environ, **SAFE, **names}
            self.processes.append(subprocess.Popen([sys.executable, str(program), str(self.folder)], env=environment))

    def pause(self, *ranks: int) -> None:
        """These call no collective until `train`."""
        for rank in ranks:
            (self.folder / str(rank)).write_text("pause")

    def train(self) -> None:
        for rank in (0, 1):
            (self.folder / str(rank)).unlink(missing_ok=True)

    def signal(self, rank: int, which: signal.Signals) -> None:
        self.processes[rank].send_signal(which)

    def end(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()


@dataclass
class Watch:
    """What the sidecar's code says of them."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    witness: Witness = field(default_factory=Witness)

    def during(self, what: str, seconds: float, behind_for_s: float | None = None) -> None:
        began = time.monotonic()
        row: dict[str, Any] = {"what": what, "seconds": seconds, "named_after_s": None, "named": None, "silent": None}
        row |= {"answers": 0, "silences": 0, "slowest_answer_s": 0.0, "named_at_end": False}
        while (now := time.monotonic()) < began + seconds:
            for _ in range(ASKS):
                asked_at = time.monotonic()
                try:
                    answer = asked(1.0)
                except NoReport as nothing:
                    row["silences"] += nothing.is_silent
                    continue
                row["answers"] += 1
                row["slowest_answer_s"] = max(row["slowest_answer_s"], round(time.monotonic() - asked_at, 3))
                self.witness = self.witness.after(answer.report, time.monotonic())
            found = self._found(behind_for_s)
            row["named_at_end"] = found is not None
            if found is not None and row["named"] is None:
                row["named_after_s"] = round(time.monotonic() - began, 1)
                row["named"] = [each.rank for each in found.ranks]
                row["silent"] = found.is_silent
            time.sleep(max(0.0, min(TICK_S - (time.monotonic() - now), began + seconds - time.monotonic())))
        self.rows.append(row)
        print(json.dumps(row), flush=True)

    def _found(self, behind_for_s: float | None) -> Hang | None:
        now = time.monotonic()
        return hang(self.witness, now) if behind_for_s is None else hang(self.witness, now, behind_for_s)


def main(out: Path) -> None:
    """Walks through all of it, in under nine minutes."""
    out.mkdir(parents=True, exist_ok=True)
    folder = Path("/tmp/hangs")  # noqa: S108 - of a machine that is lent for this
    folder.mkdir(exist_ok=True)
    ranks, watch = Ranks(folder), Watch()
    ranks.start()
    try:
        watch.during("start: imports, NCCL's setup, first steps", 40)
        ranks.pause(0, 1)
        watch.during("both pause (a checkpoint, an evaluation)", 60)
        ranks.train()
        watch.during("training", 10)
        ranks.pause(0)
        watch.during("rank 0 saves alone, the other waits in a collective", 85)
        ranks.train()
        watch.during("training", 10)
        ranks.signal(1, signal.SIGSTOP)
        watch.during("SIGSTOP of rank 1", 125)
        ranks.signal(1, signal.SIGCONT)
        watch.during("SIGCONT: training, while each calls the other dead", 40)
        ranks.pause(0, 1)
        watch.during("both pause, likewise", 45)
        ranks.train()
        watch.during("training, likewise", 10)
        ranks.pause(1)
        watch.during("rank 1 calls none, with a deadline of 60 s", 80, BEHIND_FOR_S)
        ranks.train()
        watch.during("training", 10)
    finally:
        ranks.end()
        (out / "hangs.json").write_text(json.dumps(watch.rows, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
