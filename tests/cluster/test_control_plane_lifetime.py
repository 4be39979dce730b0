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
    """And a further program of the second ends with it."""
    with LocalCluster() as other:
        assert other.server != local_cluster.server
        assert other.directory != local_cluster.directory
        other.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only-in-the-other"}})
        assert other.get("namespace", "only-in-the-other")["status"]["phase"] == "Active"
        assert "only-in-the-other" not in local_cluster.kubectl("get", "namespaces")
        further = other.start_program("further", "sleep", "1000")
        assert is_running(further)
    assert local_cluster.kubectl("get", "--raw=/readyz") == "ok"
    assert not is_running(further)


def test_a_further_program_leaves_its_output_there(local_cluster: LocalCluster) -> None:
    printed = local_cluster.directory / "logs" / "talker.log"
    printed.unlink(missing_ok=True)  # of a first try
    local_cluster.start_program("talker", "sh", "-c", "echo I am $NAME", environment={"NAME": "it"})
    local_cluster.wait_for(lambda: printed.read_text() == "I am it\n", "the program to speak")
    short = local_cluster.start_program("short", "true")
    local_cluster.wait_for(lambda: not is_running(short), "the short program to have ended")
    with pytest.raises(ClusterError, match=r"absent did not start: .*No such file or directory: 'no-such-program'"):
        local_cluster.start_program("absent", "no-such-program")


def directory_of(owner: "subprocess.Popen[str]") -> Path:
    """The folder of its cluster, which is ready."""
    assert owner.stdout is not None
    told = next(line for line in owner.stdout if "KUBECONFIG" in line)
    return Path(re.findall(r"KUBECONFIG=(\S+)", told)[0]).parent


def starting_directory_of(owner: "subprocess.Popen[str]") -> Path:
    """The folder of its cluster, of which the API server has begun to run."""

    def begun() -> Path | None:
        for command in (Path("/proc") / str(owner.pid) / "task" / str(owner.pid) / "children").read_text().split():
            words = (Path("/proc") / command / "cmdline").read_bytes().decode().split("\0")
            folder = next((Path(word) for word in words if Path(word).name.startswith("closeknit-")), None)
            if folder and any("kube-apiserver" in each for each in processes_of(folder).values()):
                return folder
        return None

    wait_until(lambda: begun() is not None, "the API server to run", 60)
    folder = begun()
    assert folder is not None
    return folder


@pytest.mark.parametrize(
    ("how", "exit_code", "when"),
    [
        pytest.param(signal.SIGINT, 0, directory_of, id="Ctrl-C of the owner leaves nothing behind"),
        pytest.param(signal.SIGTERM, 0, starting_directory_of, id="one told to end while it starts leaves nothing"),
        pytest.param(
            signal.SIGKILL, -signal.SIGKILL, starting_directory_of, id="one killed while it starts leaves nothing"
        ),
    ],
)
def test_no_process_and_no_folder_outlives_the_owner(
    how: signal.Signals, exit_code: int, when: Callable[["subprocess.Popen[str]"], Path]
) -> None:
    """How far the cluster is makes no difference to its supervisor, who ends what runs."""
    command = [sys.executable, "-m", "harness.local_cluster"]
    # With SIGINT ignored, as a shell's background has it.
    ignored = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    with subprocess.Popen(ignored, cwd=TESTS, stdout=subprocess.PIPE, text=True) as owner:
        directory = when(owner)
        running = {name for command in processes_of(directory).values() for name in command.split()[:1]}
        assert {Path(name).name for name in running} >= {"etcd", "kube-apiserver"}
        owner.send_signal(how)
        try:
            assert owner.wait(timeout=20) == exit_code
        finally:
            owner.kill()
    wait_until(lambda: not directory.exists(), f"{directory} to be gone")
    wait_until(lambda: not processes_of(directory), "all processes to be gone")


def test_nothing_outlives_the_supervisor_either() -> None:
    with LocalCluster() as cluster:
        running = {Path(command.split()[0]).name for command in processes_of(cluster.directory).values()}
        assert running >= {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}
        supervisor = next(pid for pid, command in processes_of(cluster.directory).items() if "supervisor.py" in command)
        subprocess.run(["kill", "-KILL", str(supervisor)], check=True)
        wait_until(lambda: not processes_of(cluster.directory), "all programs to be gone")
    assert not cluster.directory.exists()


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


@pytest.mark.parametrize("nothing", [None, False, [], {}, ""])
def test_a_wait_ends_on_an_answer_and_on_no_empty_one(local_cluster: LocalCluster, nothing: object) -> None:
    answers = iter([nothing, nothing, "there"])
    assert local_cluster.wait_for(lambda: next(answers), "an answer", timeout_s=5) == "there"
