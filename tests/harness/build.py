"""Brings the stock Kubernetes programs that the tests run against, once, into the user's cache folder.

Each folder of `harness/go` pins one upstream project as a Go module (one each, because their dependencies clash). A
project's own release files are taken where they can be had; else it is built from its module. Either way it ends in
`~/.cache/closeknit/<project>-<version>-<hash of its module files>`, so that a change of one brings that one only.
`python -m harness.build` is what `make cluster` calls.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from harness.progress import Progress
from harness.releases import Release, WrongChecksum, fetch
from harness.toolchain import BuildError, find_go

GO_MODULES = Path(__file__).parent / "go"
AT_ONCE = 2  # builds; one alone leaves cores idle while it links, and a third would only compete


@dataclass(frozen=True, slots=True)
class Project:
    """One upstream project: which main package is built, and under which names its programs are called."""

    name: str
    module: str  # whose version in go.mod is the project's version
    package: str
    programs: tuple[str, ...]
    # Link-time variable -> value; "{version}" etc. are filled in. Without them the programs call themselves "master".
    stamps: Mapping[str, str]
    releases: tuple[Release, ...] = ()
    """What upstream publishes of it: every program, or none."""

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


def _kubernetes_releases(sha256: Mapping[str, Mapping[str, str]]) -> tuple[Release, ...]:
    url = "https://dl.k8s.io/release/{{version}}/bin/linux/{{architecture}}/{program}"
    return tuple(Release(program, url.format(program=program), digests) for program, digests in sha256.items())


PROJECTS = (
    Project(
        name="kubernetes",
        module="k8s.io/kubernetes",
        package=".",
        programs=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
        # `version` and `/version` read the first, the user agent in the audit log the second.
        stamps=_kubernetes_stamps("k8s.io/component-base/version") | _kubernetes_stamps("k8s.io/client-go/pkg/version"),
        # v1.36.3, as kops pins them: pkg/assets/assetdata/k8s-1.36.yaml of kubernetes/kops at 347983e.
        releases=_kubernetes_releases(
            {
                "kube-apiserver": {
                    "amd64": "1f217d397234a6d065da663c6e086fdb02c0f0de97a0758ff3e6f3956f4ef8ab",
                    "arm64": "16001b9d35d23634c361a1e2b7b0fc7abe186984af697ef7a869c8c8cded78b7",
                },
                "kube-controller-manager": {
                    "amd64": "7edfe976d5a06c7a702d653e914095f4a732a04bb2139115b6a6eba6a9b781c7",
                    "arm64": "27868a5c822824945b93f2d8a724a5dcd99affc68b47230ae766bff8795bbb84",
                },
                "kube-scheduler": {
                    "amd64": "b8955d4518c902110b50a825364339b1fb673822518ce0ba081a69ed634f8eee",
                    "arm64": "ca1c7cd0033942bf9ef7eac80e18375d91f6f29487244c3e685f11163b01a88d",
                },
                "kubectl": {
                    "amd64": "ebbd080e7c2e275093b55915722043257eb24004363e20acb3c4d71919f88336",
                    "arm64": "3d86f24401c41ae5a46ac50eef8865fe891d3647d324a0836f6c63757a126e62",
                },
            }
        ),
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
        # Upstream publishes no list of checksums; this one is what others have pinned for v0.8.0. No arm64 was found.
        releases=(
            Release(
                "kwok",
                "https://github.com/kubernetes-sigs/kwok/releases/download/{version}/kwok-linux-{architecture}",
                {"amd64": "f5a4385a2ae1b9dd7f8acae18e002a75c0ebba124ae9d7259aa8dadb50711f46"},
            ),
        ),
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


def ensure_built(projects: Sequence[Project] = PROJECTS) -> Binaries:
    """The stock programs, brought first where they are missing.

    Says on standard error what it does and how long that took, and nothing when there is nothing to do. Safe to call
    from several processes at once: one works, the others wait and then find everything there. Raises BuildError.
    """
    cache = cache_folder()
    if any(not (cache / project.key).is_dir() for project in projects):
        cache.mkdir(parents=True, exist_ok=True)
        with _one_builder(cache, sys.stderr):
            _bring([project for project in projects if not (cache / project.key).is_dir()], cache)
    programs = {program: cache / project.key / program for project in projects for program in project.programs}
    return Binaries(**{program.replace("-", "_"): path for program, path in programs.items()})


def _bring(missing: Sequence[Project], cache: Path) -> None:
    with Progress(sys.stderr) as progress, ThreadPoolExecutor(AT_ONCE) as pool:
        left = [
            project
            for project, fetched in zip(
                missing, pool.map(lambda each: _fetch(each, cache, progress), missing), strict=True
            )
            if not fetched
        ]
        if left:
            go = find_go()
            for done in [pool.submit(_build, project, go, cache, progress) for project in left]:
                done.result()


def cache_folder() -> Path:
    """The user's cache folder for this project (XDG base directories)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "closeknit"


@contextmanager
def _one_builder(cache: Path, progress: TextIO) -> Iterator[None]:
    with (cache / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another process is building the test control plane; waiting for it", file=progress, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(project: Project, cache: Path, progress: Progress) -> bool:
    """Whether the project's own release files are there now."""
    unfinished = _empty(project, cache)
    try:
        if not fetch(project.releases, project.version, unfinished):
            return False
    except WrongChecksum as error:
        progress.say(f"{error}; building {project.name} instead")
        return False
    unfinished.rename(cache / project.key)
    progress.say(f"{project.name} {project.version}: taken from its release")
    return True


def _build(project: Project, go: Sequence[str], cache: Path, progress: Progress) -> None:
    unfinished = _empty(project, cache)
    binary = unfinished / project.programs[0]
    environment = {
        "GOGC": "400",  # a fifth less compiling for memory that is there: etcd's 128 s of CPU time came to 104 s
        **os.environ,
        "GOTOOLCHAIN": "local",  # never download a compiler behind the user's back
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
    flags = ["-v", "-trimpath", "-buildvcs=false", "-ldflags", project.ldflags, "-o", str(binary)]
    what = f"building {project.name} {project.version}"
    log = unfinished / "build.log"
    with log.open("w") as output, progress.of(what, log):
        command = [*go, "build", *flags, project.package]
        process = subprocess.Popen(command, cwd=project.directory, env=environment, stdout=output, stderr=output)
        try:
            process.wait()
        finally:
            process.terminate()  # nothing to one that has ended; uv hands it on to Go, as it could not a SIGKILL
            process.wait()
    if process.returncode != 0:
        raise BuildError(f"{what} in {project.directory} failed:\n{_complaints(log)}")
    for program in project.programs[1:]:
        (unfinished / program).symlink_to(binary.name)
    unfinished.rename(cache / project.key)


def _complaints(log: Path) -> str:
    """What a build's log says beside the packages that are done, a word each."""
    return "\n".join(line for line in log.read_text().splitlines() if " " in line)


def _empty(project: Project, cache: Path) -> Path:
    """A folder to work in; what an interrupted run has left there goes. We hold the lock."""
    unfinished = cache / f".{project.key}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    return unfinished


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
