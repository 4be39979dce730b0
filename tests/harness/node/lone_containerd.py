"""containerd alone, without kubelet, network or cluster: for images that have only to start.

    with LoneContainerd() as containerd:
        containerd.import_image(archive)
        with containerd.started("localhost/closeknit/agent:test", "--help") as container:
            print(container.end().output)

A container is what Pod Security calls restricted: a read-only root, no capability, no new privileges, the runtime's
seccomp profile, the image's own user; with an empty /tmp as the chart has it. Needs what `harness.node.projects` asks
for, and overlayfs.
"""

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.node.inside import remove_cgroup
from harness.node.projects import node_programs
from harness.node.site import cgroup_folders
from harness.supervisor import remove

START_TIMEOUT_S = 30  # it takes 0.5 s; a loaded machine may take many times that
# containerd gives a container these; Pod Security's level restricted takes them all away.
_CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
    *("NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
_CONFIG = """\
version = 3
root = '{folder}/root'
state = '{folder}/state'
disabled_plugins = ['io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.grpc.v1.cri',
  'io.containerd.nri.v1.nri']
[grpc]
address = '{folder}/containerd.sock'
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended."""

    code: int
    output: str
    """Of standard output and standard error."""


class LoneContainerd:
    """Up when entered; gone with all its containers, mounts and cgroups when left."""

    def __init__(self) -> None:
        self._programs = node_programs()
        self._count = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(tempfile.mkdtemp(prefix="lone-containerd-"))
            stack.callback(remove, self.folder)
            self._namespace = self.folder.name
            for cgroup in cgroup_folders(self._namespace):
                stack.callback(remove_cgroup, cgroup)
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def import_image(self, archive: Path) -> None:
        """Takes an image."""
        client = [*self._client, "images", "import", "--local", "--snapshotter=overlayfs", str(archive)]
        done = subprocess.run(client, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{archive} is not imported: {done.stderr.strip()[-2000:]}")

    @contextmanager
    def started(
        self,
        image: str,
        *arguments: str,
        user: str = "",
        mounts: Mapping[str, Path] | None = None,
        flags: Sequence[str] = (),
    ) -> Iterator["Container"]:
        """A container of the image, which ends with the block. `arguments` replace the image's entrypoint, where there
        are any; `mounts`: what it sees read-only, and where; `flags` of `ctr run`."""
        self._count += 1
        name = f"c{self._count}"
        bound = [f"--mount=type=bind,src={path},dst={seen},options=rbind:ro" for seen, path in (mounts or {}).items()]
        run = [
            "run",
            "--rm",
            "--snapshotter=overlayfs",
            f"--fifo-dir={self.folder}/fifo",
            f"--runc-binary={self._programs['runc']}",
            f"--cgroup=/{self._namespace}/{name}",
            "--read-only",
            "--seccomp",
            *(f"--cap-drop=CAP_{name}" for name in _CAPABILITIES),
            "--mount=type=tmpfs,src=tmp,dst=/tmp,options=mode=1777",
            *bound,
            *([f"--user={user}"] if user else []),
            *flags,
        ]
        output = self.folder / f"{name}.log"
        with output.open("wb") as log:
            process = subprocess.Popen([*self._client, *run, image, name, *arguments], stdout=log, stderr=log)
        container = Container(name, process, output, self._client)
        try:
            yield container
        finally:
            if process.poll() is None:
                with suppress(RuntimeError):  # it has just ended
                    container.signal(signal.SIGKILL)
                process.wait(START_TIMEOUT_S)

    def run(self, image: str, *arguments: str, user: str = "", mounts: Mapping[str, Path] | None = None) -> Ended:
        """A container that ends by itself."""
        with self.started(image, *arguments, user=user, mounts=mounts) as container:
            return container.end()

    def _start(self, stack: ExitStack) -> None:
        config = self.folder / "config.toml"
        config.write_text(_CONFIG.format(folder=self.folder))
        log = self.folder / "containerd.log"
        (self.folder / "root").mkdir()
        # Shims have their sockets below /run. The images are in memory: they are gone at the end.
        mounts = f"mount -t tmpfs run /run && mount -t tmpfs root {self.folder}/root"
        start = f"{mounts} && exec {shlex.quote(str(self._programs['containerd']))} --config={config}"
        # It is the first of a process namespace: with it everything in there ends.
        command = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "sh", "-c", start]
        shim = self._programs["containerd-shim-runc-v2"].parent
        with log.open("wb") as said:
            process = subprocess.Popen(
                command, stdout=said, stderr=said, env={**os.environ, "PATH": f"{shim}:{os.environ['PATH']}"}
            )
        stack.callback(process.wait, START_TIMEOUT_S)
        stack.callback(process.kill)
        until = time.monotonic() + START_TIMEOUT_S
        while "containerd successfully booted" not in log.read_text():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"containerd did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        # The client unpacks images and mounts them: it has to see what containerd sees.
        inside = ["nsenter", f"--target={children[0]}", "--mount", "--pid"]
        client = [
            str(self._programs["ctr"]),
            f"--address={self.folder}/containerd.sock",
            f"--namespace={self._namespace}",
        ]
        self._client = [*inside, *client]


@dataclass(frozen=True, slots=True)
class Container:
    """One container that was started."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path
    client: Sequence[str]

    @property
    def output(self) -> str:
        """What it has said so far."""
        return self.log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Sends it to the container's first process, as a kubelet does. Raises RuntimeError if it does not run."""
        kill = [*self.client, "tasks", "kill", f"--signal={number.name}", self.name]
        done = subprocess.run(kill, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name} got no {number.name}: {done.stderr.strip()[-500:]}\n{self.output}")

    def end(self, timeout_s: float = START_TIMEOUT_S) -> Ended:
        """Waits for its end. Raises subprocess.TimeoutExpired."""
        return Ended(self.process.wait(timeout_s), self.output)
