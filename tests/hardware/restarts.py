"""Restarts in place under NCCL: a rank crashes, is killed, or stops, and the seconds until the gang trains again."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hardware.site import Site
from hardware.stack import JOBS, Stack
from hardware.ways import Ways

PROGRAM = Path(__file__).with_name("mortal.py")
START_TIMEOUT_S = 120
RESTART_TIMEOUT_S = 120  # a rank that stopped is named after 40 s
TRAINS_S = 3.0  # between two ends
TRAINS_LONG_S = 62.0  # a third run of less than a minute is no progress
REPORTS = "/reports"  # as a container sees its node's


def restarts(stack: Stack, site: Site, ways: Ways, gpus: int, **spec: Any) -> dict[str, Any]:
    """A job of so many GPUs lives through each end; every one is a restart of the same Pods, or it raises."""
    folders = [node.reports for node in stack.nodes.values()]
    for folder in folders:
        folder.chmod(0o777)  # the ranks are user 1000
        for file in folder.iterdir():
            file.unlink()
    applied = time.time()
    name = ways.start_job(gpus, {"TOLD": REPORTS}, PROGRAM, restart={"limit": 20, "onHang": "Restart"}, **spec)
    gang = Gang(stack, folders, name, gpus)
    gang.wait_for("reduced", 1)
    stack.wait_for(lambda: gang.status().get("state") == "Running", f"{name} to run", START_TIMEOUT_S)
    pods = gang.pods()
    first = gang.moments("reduced", 1)
    found: dict[str, Any] = {
        "pods": len(pods),
        "gpus": gpus,
        "apply_to_first_all_reduce_s": round(max(first) - applied, 1),
        "ranks_began_to_first_all_reduce_s": round(max(first) - min(gang.moments("began", 1)), 1),
        "communication": gang.said(0, "reduced")[0].get("nccl"),
        "ends": [],
    }
    ends = [("crash", gpus - 1, TRAINS_S), ("crash", 0, TRAINS_S), ("kill", gpus - 1, TRAINS_LONG_S)]
    if site.is_watched:
        ends.append(("stop", gpus - 1, TRAINS_S))
    for number, (how, rank, trains_s) in enumerate(ends, start=2):
        time.sleep(trains_s)
        row = gang.end(how, rank, number)
        found["ends"].append(row)
        print(f"          {name}: {row}", flush=True)
    if gang.pods() != pods:
        raise RuntimeError(f"{name} has other Pods than before: {gang.pods()}, {pods}")
    gang.tell("done", 0)
    run = ways.end_job(name)
    found["verified"] = run.verified
    return found


class Gang:
    """What its ranks have noted, and what closeknit says of it."""

    def __init__(self, stack: Stack, folders: Sequence[Path], name: str, ranks: int) -> None:
        self._stack, self._folders, self._name, self._ranks = stack, folders, name, ranks

    def end(self, how: str, rank: int, run: int) -> dict[str, Any]:
        """Ends this rank in this way; what follows until `run` trains."""
        self.tell(how, rank)
        self.wait_for("reduced", run)
        ended = self.said(rank, "ended")[-1]["at"]
        restarts = run - 1
        status = self._stack.wait_for(lambda: self._counted(restarts), f"restart {restarts} to be counted", 30)
        last = status["attempts"][-1]
        if not last.get("inPlace"):
            raise RuntimeError(f"{self._name} did not restart in place: {last}")
        return {
            "how": how,
            "rank": rank,
            "to_first_rank_s": round(min(self.moments("began", run)) - ended, 2),
            "to_last_rank_s": round(max(self.moments("began", run)) - ended, 2),
            "to_first_all_reduce_s": round(max(self.moments("reduced", run)) - ended, 2),
            "reason": last["reason"],
            "message": last.get("message"),
            "exits": last.get("exits"),
            "phases": last.get("phases"),
        }

    def tell(self, word: str, rank: int) -> None:
        """Has this rank do so, wherever it is."""
        for folder in self._folders:
            (folder / f"{word}-{rank}").touch()

    def _counted(self, restarts: int) -> dict[str, Any] | None:
        status = self.status()
        return status if status.get("restarts") == restarts and status["state"] == "Running" else None

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self._stack.cluster.get("trainingjob", self._name, JOBS).get("status", {})
        return status

    def pods(self) -> list[str]:
        """Their uids."""
        found = self._stack.cluster.get("pods", namespace=JOBS)["items"]
        own = [pod for pod in found if pod["metadata"].get("labels", {}).get("closeknit.dev/job") == self._name]
        return sorted(pod["metadata"]["uid"] for pod in own)

    def said(self, rank: int, what: str) -> list[dict[str, Any]]:
        """What a rank noted of this kind."""
        files = [file for folder in self._folders if (file := folder / f"said-{rank}").exists()]
        lines = [line for file in files for line in file.read_text().splitlines()]
        return [line for line in map(json.loads, lines) if line["what"] == what]

    def moments(self, what: str, run: int) -> list[float]:
        """When each rank noted it in this run, from 1."""
        return [float(self.said(rank, what)[run - 1]["at"]) for rank in range(self._ranks)]

    def wait_for(self, what: str, run: int) -> None:
        """Until every rank has noted it in this run."""
        self._stack.wait_for(
            lambda: all(len(self.said(rank, what)) >= run for rank in range(self._ranks)),
            f"{self._name} to have {what} in run {run}",
            START_TIMEOUT_S if run == 1 else RESTART_TIMEOUT_S,
        )
