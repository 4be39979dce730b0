"""A gang that grows in its Pods: when the added members count, how the others leave their run, and what trainers are
told."""

import time
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest

from closeknit.launch.frameworks import jax, pytorch
from closeknit.launch.manifests.sidecar_container import FOLDER, SIZE_FOLDER
from closeknit.sidecar.gang.hub import Hub
from closeknit.sidecar.gang.protocol import Command, Order, Phase, Report
from closeknit.sidecar.gang.run_folder import RunFolder
from closeknit.sidecar.gang.settings import FOLDER as SIDECARS_FOLDER
from closeknit.sidecar.gang.settings import Settings
from harness.install import free_port
from unit.sidecar.test_watch import Pod
from unit.sidecar.test_wrapper import start

SIZES = pytorch.CONTRACT.sizes


def growing() -> Hub:
    """Of two members that run, which are to be four."""
    hub = Hub(2, 3, 0.0)
    for index in range(2):
        hub.hear(Report(index, Phase.RUNNING, 3), 0.0)
    hub.resize(4, 32)
    return hub


def added(index: int) -> Report:
    return Report(index, Phase.WAITING, -1, f"new{index}", 1)


def test_the_others_train_on_until_all_added_members_wait() -> None:
    hub = growing()
    assert (hub.is_called, hub.order(0)) == (False, Order(Command.STAY))
    hub.hear(added(2), 100.0)
    assert (hub.is_called, hub.order(0)) == (False, Order(Command.STAY))
    hub.hear(added(3), 100.0)
    assert [hub.order(index) for index in range(4)] == [Order(Command.LEAVE, 3)] * 2 + [Order(Command.STAY)] * 2
    hub.hear(Report(0, Phase.FAILED, 3), 101.0)
    assert hub.order(1) == Order(Command.LEAVE, 3), "one that ends before the other is no failure"
    for index in range(2):
        hub.hear(Report(index, Phase.WAITING, 3, f"old{index}"), 102.0)
    assert hub.release(102.0)
    assert hub.order(1) == Order(Command.GO, 4, "old1", 4, 32)
    assert hub.order(3) == Order(Command.GO, 4, "new3", 4, 32)
    assert hub.begun == 4


def test_a_failure_meanwhile_ends_the_run_at_once_and_the_next_has_all() -> None:
    hub = growing()
    hub.hear(Report(0, Phase.FAILED, 3), 100.0)
    assert hub.order(1) == Order(Command.RESET, 3)
    for index in range(2):
        hub.hear(Report(index, Phase.WAITING, 3, f"old{index}"), 101.0)
    assert not hub.release(101.0)
    for index in (2, 3):
        hub.hear(added(index), 102.0)
    assert hub.release(102.0)


def test_a_member_that_was_added_once_is_one_like_the_others() -> None:
    hub = Hub(4, 4, 0.0, begun=4)
    hub.hear(Report(0, Phase.RUNNING, 4), 0.0)
    hub.hear(Report(3, Phase.WAITING, -1, "new", 2), 1.0)
    assert hub.order(0) == Order(Command.RESET, 4), "its Pod was replaced: the others wait for nothing"


def test_a_gang_does_not_shrink_in_its_pods() -> None:
    hub = growing()
    hub.resize(3, 24)
    assert (hub.size, hub.ranks) == (4, 32)


def test_what_was_begun_outlives_the_containers(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    hub = growing()
    folder.keep(hub)
    assert (folder.hub(2, 3).begun, folder.hub(2, 3).size) == (2, 2), "the size is read again where it is told"
    hub.begun = 4
    folder.keep(hub)
    assert (folder.hub(2, 3).begun, folder.hub(2, 3).size) == (4, 4)


@pytest.mark.parametrize("text", ["", "4", "4 x", "0 0", "4 3", "70000 70000", "4 32 1", "\xff"])
def test_what_is_no_size_tells_nothing(tmp_path: Path, text: str) -> None:
    folder = RunFolder(str(tmp_path / "gang"))
    assert folder.told_size() is None
    (tmp_path / "gang-size").mkdir()
    (tmp_path / "gang-size" / "size").write_text(text)
    assert folder.told_size() is None
    (tmp_path / "gang-size" / "size").write_text("4 32\n")
    assert folder.told_size() == (4, 32)


def test_operator_and_sidecar_agree() -> None:
    assert SIZE_FOLDER == f"{SIDECARS_FOLDER}-size" == f"{FOLDER}-size"
    told = '{"index": 0, "size": 2, "host": "h", "port": 1, "key": "ab", "grace": 60, "sizes": %s}'
    settings = Settings.parse(told % '{"PET_NNODES": "{nodes}:{nodes}", "CLOSEKNIT_WORLD_SIZE": "{ranks}"}')
    assert settings.sizes == SIZES
    assert (settings.grace_s, Settings.parse(told % "{}").sizes) == (60, {})
    assert settings.variables(4, 32) == {"PET_NNODES": "4:4", "CLOSEKNIT_WORLD_SIZE": "32"}
    assert settings._replace(sizes=jax.CONTRACT.sizes).variables(4, 32) == {"JAX_NUM_PROCESSES": "4"}


TRAINER = """
trap 'sleep 1; echo "saved by $PET_NNODES" >> saved; exit 0' TERM
touch began; sleep 60 & wait
"""


def test_trainers_get_their_time_and_then_all_begin_with_the_new_size(tmp_path: Path) -> None:
    port = free_port()
    pods = [Pod(tmp_path / str(index), index, 2, port, sizes=SIZES, grace=30) for index in range(2)]
    new = Pod(tmp_path / "2", 2, 3, port, sizes=SIZES, grace=30, replacement=1)
    trainers = []
    try:
        for pod in pods:
            pod.start()
        assert [pod.run for pod in pods] == [0, 0]
        for pod in pods:
            options: dict[str, Any] = {"cwd": pod.folder, "stdout": DEVNULL, "stderr": DEVNULL}
            trainers.append(start(pod.folder, "bash", "-c", TRAINER, variables={"PET_NNODES": "2:2"}, **options))
            wait_for(pod.folder / "began")
        new.start()
        time.sleep(1)
        assert all(pod.runs_on for pod in pods)
        (tmp_path / "0-size").mkdir()
        (tmp_path / "0-size" / "size").write_text("3 24")
        for pod, trainer in zip(pods, trainers, strict=True):
            assert pod.watch is not None and pod.watch.wait(60) == 77
            assert (pod.folder / "saved").read_text() == "saved by 2:2\n"
            assert trainer.poll() is None, "one that ended with 0 would not be started again"
            trainer.terminate()
            assert trainer.wait(20) == 0
            pod.kill()
        for pod in pods:
            pod.start()
        assert [pod.run for pod in (*pods, new)] == [1, 1, 1]
        assert pods[1].message["ended"]["was_told"]
        trainers = [start(pod.folder, "sh", "-c", "exec echo $PET_NNODES $CLOSEKNIT_WORLD_SIZE") for pod in pods]
        assert [each.communicate(timeout=20)[0] for each in trainers] == ["3:3 24\n"] * 2
    finally:
        for pod in (*pods, new):
            pod.kill()
        for each in trainers:
            each.kill()


def test_a_sidecar_that_starts_again_while_its_trainer_leaves_knows_of_it(tmp_path: Path) -> None:
    """Else a trainer that has saved and ended with 0 would count as over."""
    pod = Pod(tmp_path / "0", 0, 1, free_port())
    try:
        pod.start()
        assert pod.run == 0
        RunFolder(str(pod.folder)).ask_to_leave(0)
        pod.kill()
        pod.trainer_ends(0, is_told=True)
        pod.start_watch()
        pod.is_reset()
    finally:
        pod.kill()


def wait_for(file: Path) -> None:
    until = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
