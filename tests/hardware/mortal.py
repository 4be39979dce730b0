"""Ranks that all-reduce until a file tells one how to end; run by torchrun, and told when each came how far.

    TOLD=/folder torchrun --standalone --nproc-per-node 2 mortal.py

It imports nothing of the project. `TOLD/said-RANK` gets a JSON line at each step of a life: `began` before PyTorch is
imported, `met` after the process group is there, `reduced` after the first all-reduce, and `ended` before an end.
`TOLD/crash-RANK` has it exit with 3, `kill-RANK` die by SIGKILL, `stop-RANK` stop by SIGSTOP, `done-RANK` ends all.
"""

import json
import os
import signal
import time
from pathlib import Path

RANK, FOLDER = os.environ["RANK"], Path(os.environ["TOLD"])
STEP_S = 0.02


def say(what: str, **facts: object) -> None:
    """Notes this moment."""
    with (FOLDER / f"said-{RANK}").open("a") as file:
        file.write(json.dumps({"what": what, "at": time.time(), **facts}) + "\n")


say("began")

import torch  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]  # noqa: E402


def main() -> None:
    """Trains, if that is the word."""
    gpus = torch.cuda.is_available()
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if gpus else "gloo")
    say("met")
    data = torch.zeros(1 << 22, device="cuda" if gpus else "cpu")
    is_first = True
    while True:
        obey()
        data.fill_(float(is_told("done")))
        dist.all_reduce(data)
        if float(data[0]) > 0:  # waits for the GPU, too
            break
        if is_first:
            say("reduced", nccl=".".join(map(str, torch.cuda.nccl.version())) if gpus else "gloo")
            is_first = False
        time.sleep(STEP_S)
    dist.destroy_process_group()


def is_told(word: str) -> bool:
    """Whether this rank is told so."""
    return (FOLDER / f"{word}-{RANK}").exists()


def obey() -> None:
    """Ends this rank as it is told to, once."""
    for word, how in (("kill", signal.SIGKILL), ("stop", signal.SIGSTOP), ("crash", None)):
        if is_told(word):
            (FOLDER / f"{word}-{RANK}").unlink()
            say("ended", how=word)
            if how is None:
                os._exit(3)
            os.kill(os.getpid(), how)


main()
