"""The sidecar's programs as they run in Pods, on loopback: what each says, and how it ends."""

import inspect
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from closeknit.cluster.pods.pod import TOLD_CODE
from closeknit.launch.manifests import sidecar_container
from closeknit.sidecar import main
from closeknit.sidecar.gang import settings
from closeknit.sidecar.gang.protocol import LONGEST_LINE
from closeknit.sidecar.gang.settings import RESET_CODE
from harness.install import free_port

ROOT = Path(__file__).parents[3]
PATIENCE_S = 120  # a moment where nobody else uses the machine
PROGRAM = """
import os
import sys
from functools import partial
from closeknit.sidecar import hang, progress_signs, ras, watch
from closeknit.sidecar.gang import hub, participant
from closeknit.sidecar.barrier import Barrier
from closeknit.sidecar.gang.run_folder import RunFolder
from closeknit.sidecar.gang.settings import Settings
watch.MESSAGE_PATH = sys.argv[2] + "/watch-message"
address = "127.0.0.1", int(os.environ["RAS_PORT"])
watch.ProgressSigns = partial(progress_signs.ProgressSigns, ask=lambda timeout_s: ras.asked(timeout_s, address))
progress_signs.TICK_S, hang.SILENT_FOR_S, hang.STILL_FOR_S, hang.DOUBTED_FOR_S = 0.2, 1.0, 0.8, 4.0
hang._ONE_LOOK_S = 0.1  # as short beside a tick as it is
hub.HEARD_FOR_S = participant.HEARD_FOR_S = 4.0
folder, settings = RunFolder(sys.argv[2]), Settings.parse(sys.argv[3])
if sys.argv[1] == "barrier":
    sys.exit(Barrier(settings, folder, sys.argv[2] + "/message", gives_up_s=20).run())
sys.exit(watch.Watch(settings, folder).run())
"""
KEY = "ab" * 32


class Pod:
    """One Pod's containers, without a kubelet."""

    def __init__(self, folder: Path, index: int, size: int, port: int, key: str = KEY, **more: Any) -> None:
        folder.mkdir()
        self.folder, self.port = folder, port
        told = {"index": index, "size": size, "host": "127.0.0.1", "port": port, "key": key, "finalCodes": [9], **more}
        self.settings = json.dumps(told)
        self.ras_port = 1
        self.watch: subprocess.Popen[str] | None = None
        self.barrier: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """The barrier, which the watch follows."""
        self.barrier = self._program("barrier", str(self.folder), self.settings)

    def start_watch(self) -> None:
        self.watch = self._program("watch", str(self.folder), self.settings)

    def _program(self, *words: str) -> "subprocess.Popen[str]":
        environment = {"PYTHONPATH": str(ROOT / "node-agent/src"), "RAS_PORT": str(self.ras_port)}
        return subprocess.Popen([sys.executable, "-S", "-c", PROGRAM, *words], env=environment, text=True)

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
        assert self.watch is not None and self.watch.wait(PATIENCE_S) == RESET_CODE
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
        code = self.watch.wait(PATIENCE_S)
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
    wait_for_probe(pods[0].port, b"200")


def wait_for_probe(port: int, state: bytes) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with suppress(OSError):
            if probe(port).startswith(b"HTTP/1.1 " + state):
                return
        time.sleep(0.05)
    raise AssertionError(f"no probe of port {port} was answered {state.decode()}")


def probe(port: int) -> bytes:
    """What the kubelet's probe is answered."""
    with socket.create_connection(("127.0.0.1", port), 5) as asking:
        asking.sendall(b"GET /whole HTTP/1.1\r\nHost: x\r\n\r\n")
        return asking.recv(100)


@pytest.mark.parametrize("lost", [0, 2])
def test_another_pod_tells_too_whether_the_gang_is_whole(tmp_path: Path, lost: int) -> None:
    """For then the kubelet of node rank 0 may be silent, or all of its node be dead."""
    port, own = free_port(), free_port()
    probed: list[dict[str, Any]] = [{}, {"probePort": own}, {}]
    pods = [Pod(tmp_path / str(index), index, 3, port, **probed[index]) for index in (0, 1, 2)]
    try:
        for pod in pods:
            pod.start()
        assert [pod.run for pod in pods[:2]] == [0, 0]
        wait_for_probe(own, b"503")
        assert pods[2].run == 0
        wait_for_probe(own, b"200")
        for noise in (b"\xff\xfe\r\n", b"POST / HTTP/1.1\r\n\r\n", b"x" * 5000):
            with socket.create_connection(("127.0.0.1", own), 5) as stranger:
                stranger.sendall(noise)
        idle = [socket.create_connection(("127.0.0.1", own), 5) for _ in range(40)]
        wait_for_probe(own, b"200")
        for each in idle:
            each.close()
        pods[lost].kill()
        began = time.monotonic()
        wait_for_probe(own, b"503")
        assert time.monotonic() - began < 8
        assert pods[1].runs_on
    finally:
        for pod in pods:
            pod.kill()


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


@pytest.mark.parametrize("who", [0, 2])
def test_a_pod_that_replaces_another_joins_with_the_next_run(gang: list[Pod], who: int, tmp_path: Path) -> None:
    old, others = gang[who], [pod for pod in gang if pod is not gang[who]]
    if who == 0:
        old.kill()  # on loopback both would have its port
    new = Pod(tmp_path / "new", who, 3, old.port, replacement=1)
    try:
        new.start()
        for pod in others:
            pod.is_reset()
        if who == 2:  # its node is not as dead as it was thought to be
            old.is_reset()
        for pod in others:
            pod.start()
        assert [pod.run for pod in (*others, new)] == [1, 1, 1]
        if who == 2:
            old.start()
            assert old.barrier is not None
            assert old.barrier.wait(20) == 1, "it never begins a run again"
            assert old.message["run"] is None
        new.trainer_ends(5)
        for pod in others:
            pod.is_reset()
        new.kill()
        for pod in (*others, new):
            pod.start()
        assert [pod.run for pod in (*others, new)] == [2, 2, 2]
    finally:
        new.kill()


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
    assert gang[1].watch is not None and gang[1].watch.wait(PATIENCE_S) == 0


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


@pytest.mark.parametrize("who", [0, 1])
def test_a_pod_that_fails_once_another_is_over_does_not_wait_for_it(gang: list[Pod], who: int) -> None:
    """Node rank 0, too, which others would wait for."""
    gang[who].trainer_ends(0)
    over = gang[who].watch
    assert over is not None and over.wait(PATIENCE_S) == 0
    gang[2].trainer_ends(7)
    time.sleep(0.5)
    gang[2].kill()  # by its kubelet
    gang[2].start()
    barrier = gang[2].barrier
    assert barrier is not None and barrier.wait(5) == 1
    assert (gang[2].message["run"], "is over" in gang[2].message["why"]) == (None, True)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_watch_that_is_told_to_end_before_its_trainer_knows_whether_that_is_there(
    gang: list[Pod], is_killed: bool
) -> None:
    """A kubelet ends all containers of a Pod at once, but a trainer with a preStop hook after that."""
    folder = str(gang[1].folder)
    words = [sidecar_container.LAUNCH, sidecar_container.WRAPPER, folder, f"{folder}/words", "sh", "-c"]
    command = [sidecar_container.SHELL, "-c", *words, "echo ready; exec sleep 20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None and trainer.stdout.readline() == "ready\n"
        if is_killed:
            trainer.kill()
            trainer.wait()
        assert gang[1].stop() == 0
        time.sleep(0.7)
        assert [gang[0].runs_on, gang[2].runs_on] == [not is_killed] * 2
        trainer.terminate()


@pytest.mark.parametrize("is_final", [False, True])
def test_a_watch_ends_with_a_trainer_that_is_killed_for_good(tmp_path: Path, is_final: bool) -> None:
    """For want of memory, with its wrapper, where rules let no such end start anything again: no kubelet ends the
    sidecar then, and its Pod would run for ever."""
    pod = Pod(tmp_path / "0", 0, 1, free_port(), finalCodes=[137] if is_final else [9])
    pod.start()
    assert pod.run == 0
    words = [sidecar_container.LAUNCH, sidecar_container.WRAPPER, str(pod.folder), "", "sh", "-c"]
    command = [sidecar_container.SHELL, "-c", *words, "echo ready; exec sleep 20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None and trainer.stdout.readline() == "ready\n"
        time.sleep(1)
        assert pod.runs_on
        trainer.kill()
    time.sleep(5)
    assert pod.runs_on is not is_final
    assert pod.watch is not None
    assert not is_final or pod.watch.wait() == 0
    pod.kill()


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
    for name in ("VARIABLE", "REPLACED_VARIABLE", "FOLDER", "RESET_CODE"):
        assert getattr(sidecar_container, name) == getattr(settings, name)
    assert TOLD_CODE == settings.TOLD_CODE
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


class Ras:
    """NCCL's RAS of two ranks, for as many questions as come."""

    def __init__(self) -> None:
        self.counts: list[int | None] = [0, 0]
        """Collectives called by each rank; None for one that does not answer."""
        self.version: Any = "2.28.9"
        self.is_old = False
        """Whether it has no JSON."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                with client, client.makefile("rb") as lines:
                    for said in (b"SERVER PROTOCOL 2\n", b"OK\n", b"OK\n"):
                        lines.readline()
                        client.sendall(said)
                    lines.readline()
                    client.sendall(self._report())

    def _report(self) -> bytes:
        if self.is_old:
            return f"NCCL version {self.version} compiled with CUDA 12.4\n".encode()
        names = [{"rank": rank, "host": "127.0.0.1", "pid": 100 + rank, "cuda_dev": rank} for rank in (0, 1)]
        known = [
            {**name, "collective_counts": {"AllReduce": count}}
            for name, count in zip(names, self.counts, strict=True)
            if count is not None
        ]
        missing = [name for name, count in zip(names, self.counts, strict=True) if count is None]
        world = {"hash": "0x1", "size": 2, "ranks": known, "missing_ranks": missing}
        return json.dumps({"nccl_version": self.version, "communicators": [world]}).encode()

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def ras() -> Iterator[Ras]:
    found = Ras()
    yield found
    found.close()


@pytest.fixture
def lone(tmp_path: Path, ras: Ras) -> Iterator[Pod]:
    """A gang of one Pod, that listens to RAS."""
    pod = Pod(tmp_path / "0", 0, 1, free_port(), ras=True)
    pod.ras_port = ras.port
    pod.start()
    assert pod.run == 0
    yield pod
    pod.kill()


def told(pod: Pod) -> dict[str, Any]:
    """The words of a watch that ends to say something; it is started again, as by its kubelet."""
    assert pod.watch is not None and pod.watch.wait(15) == TOLD_CODE
    found: dict[str, Any] = json.loads((pod.folder / "watch-message").read_text())
    pod.start_watch()
    return found


def train(ras: Ras, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ras.counts = [(count or 0) + 1 for count in ras.counts]
        time.sleep(0.05)


def test_a_hang_is_told_once_and_so_is_its_end(lone: Pod, ras: Ras) -> None:
    train(ras, 1.0)
    ras.counts = [ras.counts[0], None]
    words = told(lone)
    assert words["run"] == 0
    (hung,) = words["hang"]["ranks"]
    assert (hung["local"], hung["index"], words["hang"]["silent"]) == (1, 0, True), "a gang of one Pod has no addresses"
    assert abs(words["hang"]["at"] - time.time()) < 60
    time.sleep(2.5)
    assert lone.runs_on, "it was told"
    ras.counts = [ras.counts[0], ras.counts[0]]
    train(ras, 1.5)
    assert told(lone) == {"run": 0, "hang": None, "nccl": "2.28.9"}
    train(ras, 1.0)
    assert lone.runs_on


def test_a_pause_is_told_to_none(lone: Pod, ras: Ras) -> None:
    train(ras, 1.0)
    time.sleep(3.0)
    assert lone.runs_on


def test_a_gang_that_hangs_begins_again_where_the_job_wants_it(tmp_path: Path, ras: Ras) -> None:
    port = free_port()
    gang = [Pod(tmp_path / str(index), index, 2, port, ras=True, onHang="Restart") for index in range(2)]
    for pod in gang:
        pod.ras_port = ras.port
        pod.start()
    assert [pod.run for pod in gang] == [0, 0]
    is_whole(gang)
    train(ras, 1.0)
    ras.counts = [ras.counts[0], None]
    for pod in gang:
        pod.is_reset()
    ras.counts = [0, 0]
    for pod in gang:
        pod.start()
    assert [pod.run for pod in gang] == [1, 1]
    assert gang[0].message["hang"]["ranks"][0]["local"] == 1
    assert "hang" not in gang[1].message, "who knows it says it"
    for pod in gang:
        pod.kill()


@pytest.mark.parametrize("version", ["2.28.9", "2.30.7+cuda13.0", 7, "../../etc/passwd", "2." + "9" * 5000])
@pytest.mark.parametrize("is_awaited", [False, True])
def test_the_version_of_nccl_is_told_once_where_the_operator_waits_for_it(
    tmp_path: Path, ras: Ras, is_awaited: bool, version: Any
) -> None:
    ras.version = version
    more: dict[str, Any] = {"nccl": True} if is_awaited else {}
    pod = Pod(tmp_path / "0", 0, 1, free_port(), ras=True, **more)
    pod.ras_port = ras.port
    pod.start()
    try:
        assert pod.run == 0
        is_one = str(version)[:2] == "2." and len(str(version)) < 99
        if is_awaited and is_one:
            assert told(pod) == {"run": 0, "hang": None, "nccl": version.partition("+")[0]}
        time.sleep(0.7)  # three looks
        assert pod.runs_on
    finally:
        pod.kill()


def test_an_nccl_by_which_no_hang_is_seen_is_told_though_no_word_waits_for_it(lone: Pod, ras: Ras) -> None:
    ras.is_old, ras.version = True, "2.24.3+cuda12.4"
    assert told(lone) == {"run": 0, "hang": None, "nccl": "2.24.3"}
    time.sleep(0.7)
    assert lone.runs_on


def test_a_trainer_that_no_longer_touches_its_file_has_stalled(tmp_path: Path) -> None:
    pod = Pod(tmp_path / "0", 0, 1, free_port(), stallSeconds=2)
    pod.start()
    assert pod.run == 0
    time.sleep(2.5)
    assert pod.runs_on, "it has never touched it"
    (pod.folder / "progress").touch()
    began = time.monotonic()
    words = told(pod)
    assert 1.5 < time.monotonic() - began < 5
    assert (words["hang"]["stalled"], words["run"]) == (0, 0)
    (pod.folder / "progress").touch()
    assert told(pod)["hang"] is None
    pod.kill()


@pytest.mark.parametrize("follows", [False, True])
def test_the_first_touch_is_told_once_in_a_run_that_follows_another(tmp_path: Path, follows: bool) -> None:
    more: dict[str, Any] = {"firstStep": True} if follows else {}
    pod = Pod(tmp_path / "0", 0, 1, free_port(), stallSeconds=60, **more)
    pod.start()
    assert pod.run == 0
    (pod.folder / "progress").touch()
    began = time.time()
    if follows:
        words = told(pod)
        assert (words["run"], words["hang"]) == (0, None)
        assert abs(words["firstStep"] - began) < 2
        (pod.folder / "progress").touch()
    time.sleep(1)
    assert pod.runs_on
    pod.kill()


@pytest.mark.parametrize("who", [0, 1])
def test_a_gang_with_a_trainer_that_has_stalled_begins_again_where_the_job_wants_it(tmp_path: Path, who: int) -> None:
    port = free_port()
    gang = [Pod(tmp_path / str(index), index, 2, port, stallSeconds=1, onHang="Restart") for index in range(2)]
    for pod in gang:
        pod.start()
    try:
        assert [pod.run for pod in gang] == [0, 0]
        is_whole(gang)
        (gang[who].folder / "progress").touch()
        for pod in gang:
            pod.is_reset()
        for pod in gang:
            pod.start()
        assert [pod.run for pod in gang] == [1, 1]
        assert gang[who].message["hang"]["stalled"] == who
    finally:
        for pod in gang:
            pod.kill()


def test_a_gang_that_hangs_beside_a_pod_that_is_over_ends_in_these_pods(tmp_path: Path) -> None:
    port = free_port()
    gang = [Pod(tmp_path / str(index), index, 2, port, stallSeconds=1, onHang="Restart") for index in range(2)]
    for pod in gang:
        pod.start()
    try:
        assert [pod.run for pod in gang] == [0, 0]
        is_whole(gang)
        gang[1].trainer_ends(0)
        over = gang[1].watch
        assert over is not None and over.wait(PATIENCE_S) == 0
        (gang[0].folder / "progress").touch()
        gang[0].is_reset()
        gang[0].start()
        barrier = gang[0].barrier
        assert barrier is not None and barrier.wait(PATIENCE_S) == 1
    finally:
        for pod in gang:
            pod.kill()
