"""Nothing is left of a node: no process, mount, cgroup, network or folder, however its owner ends."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.node.site import cgroup_folders

pytestmark = pytest.mark.nodes

TESTS = Path(__file__).parents[1]
HOLD = """
from harness.local_cluster import LocalCluster
from harness.node.local_node import LocalNode
with LocalCluster(with_nodes=True) as cluster, LocalNode(cluster, "node-1", 1) as node:
    print(node.folder, flush=True)
    input()
"""
GONE_WITHIN_S = 20  # it takes one second


@pytest.mark.usefixtures("node_machine")
@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_nothing_is_left_when_the_owner(how: str) -> None:
    links = _links()
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD], cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().strip())
    assert folder.is_dir() and _processes(folder)
    cgroups = cgroup_folders(folder.name)
    assert all(cgroup.is_dir() for cgroup in cgroups)
    if how == "is killed":
        owner.kill()
    owner.communicate("\n", timeout=60)
    deadline = time.monotonic() + GONE_WITHIN_S
    while left := [*_processes(folder), *(each for each in (folder, *cgroups) if each.exists())]:
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.1)
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert _links() == links


def _processes(folder: Path) -> list[str]:
    """Command lines of processes that name this folder; the network namespaces end with them."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if folder.name in command:
            found.append(command)
    return found


def _links() -> set[str]:
    return {each.name for each in Path("/sys/class/net").iterdir()}
