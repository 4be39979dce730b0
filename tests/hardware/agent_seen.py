"""The agent of a node as its machine sees it: how soon it published, what it takes, what it says of a running job."""

import os
import re
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from closeknit.agent import node_agent
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.hardware import HardwareSource

PROGRAMS = {"agent": b"closeknit.agent.main", "nvml": b"closeknit.agent.nvml.nvml_worker"}
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_LOGGER = node_agent.__name__.removeprefix("closeknit.")
_WROTE = re.compile(rf"^(\S+Z) INFO {re.escape(_LOGGER)} wrote NodeTopology", re.MULTILINE)


def processes(cgroup: str) -> dict[str, int]:
    """The processes of the agent of a node, by what they are for; the cgroup of the node tells them from others."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command, groups = (folder / "cmdline").read_bytes(), (folder / "cgroup").read_text()
            except OSError:  # it has ended
                continue
            for name, program in PROGRAMS.items():
                if program in command.split(b"\0") and f"/{cgroup}/" in groups:
                    found[name] = int(folder.name)
    return found


def memory_mb(pids: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Memory of each in MB of 10^6 bytes: all that is resident, what is shared counted in parts (Pss), what is its own.

    On this machine other programs use the same Python: of two processes together, the resident memory of the one and
    what is the other's own are nearest to the truth.
    """
    found = {}
    for name, pid in pids.items():
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        kib = {line[0]: int(line[1]) for line in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
        amounts = {
            "resident": kib["Rss"],
            "pss": kib["Pss"],
            "own": kib["Private_Clean"] + kib["Private_Dirty"],
        }
        found[name] = {amount: round(size * 1024 / 1e6, 1) for amount, size in amounts.items()}
    return found


def cpu_s(pids: Mapping[str, int]) -> float:
    """Seconds of processor that they have used together until now."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids.values()]
    return sum(int(each[11]) + int(each[12]) for each in fields) * TICK_S


def cpu_share(pids: Mapping[str, int], seconds: float) -> float:
    """Share of a core that they take during the next so many seconds, in percent."""
    before, began = cpu_s(pids), time.monotonic()
    time.sleep(seconds)
    return round(100 * (cpu_s(pids) - before) / (time.monotonic() - began), 3)


def first_published_s(pid: int, log: str) -> float | None:
    """Seconds from the start of the agent's process to its own word that the NodeTopology is written."""
    wrote = _WROTE.search(log)
    if wrote is None:
        return None
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks * TICK_S
    return round(datetime.fromisoformat(wrote[1]).timestamp() - (time.time() - age_s), 2)


def discovery_s() -> dict[str, float]:
    """Seconds that this machine takes to be read and understood: the first time, with the driver opened, and again."""
    source = HardwareSource(Path("/"))
    found = {}
    for name in ("first", "again"):
        began = time.perf_counter()
        discover(source.read(), source.method)
        found[name] = round(time.perf_counter() - began, 3)
    return found


def paths(topology: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Container -> the ways that its data has moved, as published."""
    held = ((topology or {}).get("status") or {}).get("allocations") or []
    return {f"{each['namespace']}/{each['pod']}/{each['container']}": each.get("paths") or [] for each in held}
