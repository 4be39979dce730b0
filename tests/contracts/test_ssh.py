"""ssh between Pods with real OpenSSH: the scripts and settings as they are, but for folders and port of their own."""

import os
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from closeknit.api.trainingjob import Framework
from closeknit.controller.writes.ssh_key_pair import with_key_pair
from closeknit.launch.frameworks.ssh import files
from contracts.gangs import gang
from harness.install import free_port

WAIT_S = 120
ODD = 'a\'b "c" $HOME `id` \\ ü\nnext'


class Pod:
    """One Pod's folders on this machine."""

    def __init__(self, folder: Path, keys: Path, port: int, hosts: str) -> None:
        self.etc, self.run = folder / "etc", folder / "run"
        self.etc.mkdir(parents=True)
        self.run.mkdir()
        texts = {**files(gang(Framework.MPI, (1, 1))), "hostfile": hosts}
        for name, text in texts.items():
            here = text.replace("/etc/closeknit-keys", str(keys)).replace("/etc/closeknit", str(self.etc))
            here = here.replace("/run/closeknit", str(self.run)).replace("Port 2222", f"Port {port}")
            (self.etc / name).write_text(here)

    def prepare(self, role: str) -> subprocess.CompletedProcess[str]:
        """The init container."""
        command = ["/bin/sh", str(self.etc / "prepare.sh"), role]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)

    def ssh(self, *words: str) -> subprocess.CompletedProcess[str]:
        """As a launcher calls it."""
        command = ["ssh", "-n", "-F", str(self.etc / "ssh_config"), "localhost", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)


def keys(folder: Path) -> Path:
    """The Secret as it is mounted."""
    folder.mkdir()
    for name, value in with_key_pair({})["data"].items():
        (folder / name).write_bytes(b64decode(value))
        (folder / name).chmod(0o444)
    return folder


@pytest.fixture
def launcher(debian: Callable[[str], Path], tmp_path: Path) -> Iterator[Pod]:
    """The first Pod, and beside it the second with its sshd."""
    debian("openssh-server")
    port = free_port()
    secret = keys(tmp_path / "keys")
    hosts = "first slots=1\nlocalhost slots=1\n"
    first, second = (Pod(tmp_path / name, secret, port, hosts) for name in ("first", "second"))
    assert second.prepare("serve").returncode == 0
    sshd = subprocess.Popen(
        ["/bin/sh", str(second.etc / "serve.sh"), str(port)], env={**os.environ, "ODD": ODD, "RANKS": "3"}
    )
    try:
        yield first
    finally:
        sshd.terminate()
        sshd.wait(WAIT_S)


def test_the_first_waits_for_the_others_and_finds_their_environment(launcher: Pod, tmp_path: Path) -> None:
    waited = launcher.prepare("wait")
    assert waited.returncode == 0, waited.stderr
    assert launcher.ssh("printf", "%s", '"$ODD"').stdout == ODD
    assert launcher.ssh("echo $RANKS; exit 7").returncode == 7
    assert (launcher.run / "id").stat().st_mode & 0o777 == 0o600
    # Whoever has another key is nobody, and a host with another key is not believed.
    (launcher.run / "id").chmod(0o600)
    stranger = keys(tmp_path / "stranger")
    (launcher.run / "id").write_bytes((stranger / "ssh-privatekey").read_bytes())
    assert "Permission denied" in launcher.ssh("true").stderr
    (launcher.run / "known_hosts").write_text(f"closeknit {(stranger / 'ssh-publickey').read_text()}")
    assert "Host key verification failed" in launcher.ssh("true").stderr


def test_an_image_without_ssh_says_so(debian: Callable[[str], Path], tmp_path: Path) -> None:
    debian("openssh-server")
    pod = Pod(tmp_path / "pod", keys(tmp_path / "keys"), 1, "first slots=1\nsecond slots=1\n")
    (tmp_path / "bin").mkdir()
    for name in ("cat", "sh"):
        (tmp_path / "bin" / name).symlink_to(f"/bin/{name}")
    command = ["/bin/sh", str(pod.etc / "prepare.sh"), "wait"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PATH": str(tmp_path / "bin")}, timeout=WAIT_S
    )
    assert (done.returncode, done.stderr) == (1, "the image has no ssh; put OpenSSH's client and server into it\n")
