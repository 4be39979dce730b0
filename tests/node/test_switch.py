"""The switch of real nodes: who joins it later takes nobody's way to the API server."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.node import switch

pytestmark = pytest.mark.root

LOWEST = "00:00:00:00:00:01"
ADDRESS = re.compile(r"link/ether (\S+)")


def test_its_address_stays_when_a_node_with_a_lower_one_joins(tmp_path: Path) -> None:
    """A bridge without an address of its own takes the lowest of its ports: then the nodes that know the old one reach
    nobody until they ask again, which takes up to a minute."""
    command = [sys.executable, switch.__file__, "1", str(tmp_path / "door")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            path = running.stdout.readline().strip()

            def ip(*arguments: str) -> str:
                inside = ["nsenter", f"--net={path}", "ip", *arguments]
                return subprocess.run(inside, check=True, capture_output=True, text=True).stdout

            def join(name: str, address: str) -> None:
                ip("link", "add", name, "address", address, "type", "veth", "peer", "name", f"{name}-end")
                ip("link", "set", name, "master", "switch", "up")

            join("first", "0a:00:00:00:00:01")
            before = ADDRESS.findall(ip("link", "show", "switch"))
            join("late", LOWEST)
            assert ADDRESS.findall(ip("link", "show", "switch")) == before
        finally:
            running.terminate()
