"""The sidecar's programs as they run in Pods, on loopback: what each says, and how it ends."""

import inspect
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from closeknit.launch.manifests import sidecar_container
from closeknit.sidecar import main
from closeknit.sidecar.gang import settings
from closeknit.sidecar.gang.protocol import LONGEST_LINE
from closeknit.sidecar.gang.settings import RESET_CODE
from harness.install import free_port

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from closeknit.sidecar.barrier import Barrier
from closeknit.sidecar.gang.run_folder import RunFolder
from closeknit.sidecar.gang.settings import Settings
from closeknit.sidecar.watch import Watch
folder, settings = RunFolder(sys.argv[2]), Settings.parse(sys.argv[3])
if sys.argv[1] == "barrier":
    sys.exit(Barrier(settings, folder, sys.argv[2] + "/message", gives_up_s=20).run())
sys.exit(Watch(settings, folder).run())
"""
KEY = "ab" * 32


class Pod:
    """One Pod's containers, without a kubelet."""

    def __init__(self, folder: Path, index: int, size: int, port: int, key: str = KEY) -> None:
        folder.mkdir()
        self.folder, self.port = folder, port
        told = {"index": index, "size": size, "host": "127.0.0.1", "port": port, "key": key, "finalCodes": [9]}
        self.settings = json.dumps(told)
        self.watch: subprocess.Popen[str] | None = None
        self.barrier: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """The barrier, which the watch follows."""
        self.barrier = self._program("barrier", str(self.folder), self.settings)

    def start_watch(self) -> None:
        self.watch = self._program("watch", str(self.folder), self.settings)

    def _program(self, *words: str) -> "subprocess.Popen[str]":
        path = str(ROOT / "node-agent/src")
        return subprocess.Popen([sys.executable, "-S", "-c", PROGRAM, *words], env={"PYTHONPATH": path}, text=True)

    @property
    def run(self) -> int:
        """The run that it is let go for; waits for that, and starts its watch."""
        assert self.barrier is not None
        assert self.barrier.wait(20) == 0
        self.start_watch()
        return int(self.message["run"])

    @property
    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "message").read_text())
        return found

    def trainer_ends(self, code: int, *, is_told: bool = False) -> None:
        """As its wrapper writes it down."""
        run = (self.folder / "run").read_text()
        if is_told:
            (self.folder / f"told-{run}").touch()
        (self.folder / f"exit-{run}").write_text(str(code))

    def is_reset(self) -> None:
        """Waits until its watch has ended with the code for it, and ends the rest as a kubelet does."""
        assert self.watch is not None and self.watch.wait(10) == RESET_CODE
        self.kill()

    def kill(self) -> None:
        for each in (self.watch, self.barrier):
            if each is not None:
                with suppress(ProcessLookupError):
                    each.kill()
                each.wait()

    def stop(self) -> int:
        """The exit code of its watch after SIGTERM, which it heeds at once."""
        assert self.watch is not None
        began = time.monotonic()
        self.watch.terminate()
        code = self.watch.wait(10)
        assert time.monotonic() - began < 2
        return code

    @property
    def runs_on(self) -> bool:
        assert self.watch is not None
        return self.watch.poll() is None


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[list[Pod]]:
    """Three Pods, let go for their first run."""
    port = free_port()
    pods = [Pod(tmp_path / str(index), index, 3, port) for index in range(3)]
    for pod in pods:
        pod.start()
    assert [pod.run for pod in pods] == [0, 0, 0]
    is_whole(pods)
    yield pods
    for pod in pods:
        pod.kill()


def is_whole(pods: list[Pod]) -> None:
    """Waits until node rank 0 has heard all."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with suppress(OSError):
            if probe(pods[0].port).startswith(b"HTTP/1.1 200"):
                return
        time.sleep(0.05)
    raise AssertionError("node rank 0 has not heard all")


def probe(port: int) -> bytes:
    """What the kubelet's probe is answered."""
    with socket.create_connection(("127.0.0.1", port), 5) as asking:
        asking.sendall(b"GET /whole HTTP/1.1\r\nHost: x\r\n\r\n")
        return asking.recv(100)


@pytest.mark.parametrize("who", [0, 2])
def test_a_failure_of_one_resets_all_and_all_begin_together(gang: list[Pod], who: int) -> None:
    failing, others = gang[who], [pod for pod in gang if pod is not gang[who]]
    failing.trainer_ends(7)
    for pod in others:
        pod.is_reset()
    failing.kill()  # by its kubelet, after its trainer's code
    for pod in others:
        pod.start()
    time.sleep(0.5)
    assert all(pod.barrier is not None and pod.barrier.poll() is None for pod in others), "one of the old run is there"
    failing.start()
    assert [pod.run for pod in gang] == [1, 1, 1]
    ended = failing.message["ended"]
    assert (ended["code"], ended["was_told"]) == (7, False)
    assert abs(ended["at"] - time.time()) < 60
    assert "ended" not in others[0].message


def test_the_reset_of_node_rank_0_without_a_word_resets_all(gang: list[Pod]) -> None:
    gang[0].kill()
    time.sleep(0.5)
    assert gang[1].runs_on and gang[2].runs_on, "a lost connection resets nobody"
    gang[0].start()
    for pod in gang[1:]:
        pod.is_reset()
        pod.start()
    assert [pod.run for pod in gang] == [1, 1, 1]


def test_a_watch_that_is_started_again_alone_resets_nobody(gang: list[Pod]) -> None:
    for pod in (gang[0], gang[1]):
        assert pod.watch is not None
        pod.watch.kill()
        pod.watch.wait()
        pod.start_watch()
    is_whole(gang)
    time.sleep(0.5)
    assert all(pod.runs_on for pod in gang)


def test_a_watch_ends_with_its_trainer(gang: list[Pod]) -> None:
    """Else its Pod would never be over."""
    gang[1].trainer_ends(0)
    assert gang[1].watch is not None and gang[1].watch.wait(10) == 0


@pytest.mark.parametrize(
    ("code", "is_told"),
    [pytest.param(0, False, id="well"), pytest.param(9, False, id="for good"), pytest.param(143, True, id="told")],
)
def test_an_end_that_is_no_failure_resets_nobody(gang: list[Pod], code: int, is_told: bool) -> None:
    gang[1].trainer_ends(code, is_told=is_told)
    assert gang[1].stop() == 0
    time.sleep(0.7)
    assert gang[0].runs_on and gang[2].runs_on


def test_a_pod_that_is_deleted_resets_nobody(gang: list[Pod]) -> None:
    assert gang[1].stop() == 0
    time.sleep(0.7)
    assert gang[0].runs_on and gang[2].runs_on


def test_a_trainer_that_is_killed_with_its_wrapper_has_failed(gang: list[Pod]) -> None:
    """All that is seen of it is that its Pod's containers are ended."""
    (gang[1].folder / "wrapped-0").touch()
    assert gang[1].stop() == 0
    gang[0].is_reset()
    gang[2].is_reset()


def test_strangers_do_nothing(gang: list[Pod], tmp_path: Path) -> None:
    """Without the key; and by the hundred, with whatever they send."""
    port = gang[0].port
    stranger = Pod(tmp_path / "stranger", 1, 3, port, key="cd" * 32)
    (stranger.folder / "run").write_text("7")
    stranger.start()
    noise = [
        b"\n" * 1000,
        b"x" * 4 * LONGEST_LINE,
        os.urandom(1000),
        b"GET",
        b"closeknit-gang/1 " + b"a" * 32 + b"\n{}\n",
    ]
    strangers = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(200)]
    for index, each in enumerate(strangers):
        with suppress(OSError):
            each.sendall(noise[index % len(noise)])
    time.sleep(1)
    is_whole(gang)
    assert all(pod.runs_on for pod in gang)
    gang[2].trainer_ends(1)
    gang[1].is_reset()
    for each in strangers:
        each.close()
    stranger.kill()


def test_a_watch_is_small(gang: list[Pod]) -> None:
    for pod in gang:
        assert pod.watch is not None
        status = Path(f"/proc/{pod.watch.pid}/status").read_text()
        (rss,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
        print(f"a watch has {int(rss) / 1024:.1f} MiB")
        assert int(rss) < 18 * 1024


def test_the_operator_and_the_sidecar_agree() -> None:
    for name in ("VARIABLE", "FOLDER", "RESET_CODE"):
        assert getattr(sidecar_container, name) == getattr(settings, name)
    assert inspect.signature(main.main).parameters["folder"].default == settings.FOLDER


def test_a_new_pod_waits_for_nobody_and_imports_next_to_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from closeknit.sidecar import main; sys.argv = ['x', 'barrier']; "
        f"code = main.main({str(tmp_path)!r}, {str(tmp_path / 'message')!r}); "
        "print(code, sorted({'json', 'socket', 'pathlib', 'typing', 'enum', 're'} & sys.modules.keys()))"
    )
    path = str(ROOT / "node-agent/src")
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == ("0 []\n", "")
    assert json.loads((tmp_path / "message").read_text()) == {"run": 0}
    assert (tmp_path / "run").read_text() == "0"
