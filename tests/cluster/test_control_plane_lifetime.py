"""Control planes start beside each other, say why they do not, and leave nothing behind however they end."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import programs
from harness.build import Binaries
from harness.local_cluster import ClusterError, LocalCluster, is_running

TESTS = Path(__file__).parents[1]


def processes_of(directory: Path) -> dict[int, str]:
    """Process id -> command line of what runs in the cluster's folder or was told of it."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if str(directory) in command or (process / "cwd").readlink() == directory:
                found[int(process.name)] = command
        except OSError:  # ended meanwhile, or another user's
            continue
    return found


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.05)


def test_two_run_at_once_and_know_nothing_of_each_other(local_cluster: LocalCluster) -> None:
    with LocalCluster() as other:
        assert other.server != local_cluster.server
        assert other.directory != local_cluster.directory
        other.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only-in-the-other"}})
        assert other.get("namespace", "only-in-the-other")["status"]["phase"] == "Active"
        assert "only-in-the-other" not in local_cluster.kubectl("get", "namespaces")
    assert local_cluster.kubectl("get", "--raw=/readyz") == "ok"


@pytest.mark.parametrize(
    ("how", "exit_code"),
    [
        pytest.param(signal.SIGINT, 0, id="Ctrl-C of the owner leaves nothing behind"),
        pytest.param(signal.SIGTERM, 0, id="an owner that is told to end leaves nothing behind"),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, id="a killed owner leaves nothing behind"),
    ],
)
def test_no_process_and_no_folder_outlives_the_owner(how: signal.Signals, exit_code: int) -> None:
    command = [sys.executable, "-m", "harness.local_cluster"]
    # With SIGINT ignored, as a shell's background has it.
    ignored = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    with subprocess.Popen(ignored, cwd=TESTS, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        told = next(line for line in owner.stdout if "KUBECONFIG" in line)
        directory = Path(re.findall(r"KUBECONFIG=(\S+)", told)[0]).parent
        running = {name for command in processes_of(directory).values() for name in command.split()[:1]}
        assert {Path(name).name for name in running} >= {"etcd", "kube-apiserver", "kube-scheduler", "kwok"}
        owner.send_signal(how)
        try:
            assert owner.wait(timeout=20) == exit_code
        finally:
            owner.kill()
    wait_until(lambda: not directory.exists(), f"{directory} to be gone")
    wait_until(lambda: not processes_of(directory), "all processes to be gone")


def test_nothing_outlives_the_supervisor_either() -> None:
    with LocalCluster() as cluster:
        supervisor = next(pid for pid, command in processes_of(cluster.directory).items() if "supervisor.py" in command)
        subprocess.run(["kill", "-KILL", str(supervisor)], check=True)
        wait_until(lambda: not processes_of(cluster.directory), "all programs to be gone")
    assert not cluster.directory.exists()


def test_a_further_program_ends_with_the_cluster_and_leaves_its_output_there() -> None:
    with LocalCluster() as cluster:
        printed = cluster.directory / "logs" / "talker.log"
        pid = cluster.start_program("talker", "sh", "-c", "echo I am $NAME; sleep 1000", environment={"NAME": "it"})
        cluster.wait_for(lambda: printed.read_text() == "I am it\n", "the program to speak")
        assert is_running(pid)
        short = cluster.start_program("short", "true")
        cluster.wait_for(lambda: not is_running(short), "the short program to have ended")
        with pytest.raises(ClusterError, match=r"absent did not start: .*No such file or directory: 'no-such-program'"):
            cluster.start_program("absent", "no-such-program")
    assert not is_running(pid)


def test_a_program_that_ends_while_starting_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    def misspelt(binaries: Binaries, port: int, *, with_nodes: bool) -> list[str]:
        return [str(binaries.kube_apiserver), f"--secured-port={port}", *(["--nodes"] if with_nodes else [])]

    monkeypatch.setattr(programs, "kube_apiserver", misspelt)
    cluster = LocalCluster()
    with pytest.raises(ClusterError) as refusal, cluster:
        pytest.fail("the cluster started")
    assert str(refusal.value).startswith("kube-apiserver ended while the cluster was starting\n")
    assert "unknown flag: --secured-port" in str(refusal.value)
    assert not cluster.directory.exists()


def test_a_wait_in_vain_says_what_it_waited_for(local_cluster: LocalCluster) -> None:
    with pytest.raises(TimeoutError) as error:
        local_cluster.wait_for(lambda: None, "a fourth Monday this week", timeout_s=0.1)
    assert str(error.value).startswith("waited 0.1 s for a fourth Monday this week\nthe end of ")
    assert "kube-apiserver.log:\n" in str(error.value)
