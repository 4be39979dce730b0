"""Brings the stock Kubernetes programs that the tests run against, once, into the user's cache folder.

A project's own release files are taken where they can be had; what is left is built, all by one call of Go, in which
every package is compiled once and the cores stay busy. Either way each ends in `~/.cache/closeknit/<project>-<version>-
<hash of what it is built from>`. `python -m harness.build` is what `make cluster` calls.
"""

import fcntl
import os
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
from harness.projects import PLAIN, Project, Recipe, control_plane
from harness.releases import WrongRelease, fetch, megabytes
from harness.seccomp import find_seccomp
from harness.toolchain import BuildError, find_go


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


def ensure_built(projects: Sequence[Project] = ()) -> Binaries:
    """The programs of these projects, or of this run's control plane, brought first where they are missing. Raises
    BuildError."""
    brought = bring(projects or control_plane())
    return Binaries(**{program.replace("-", "_"): path for program, path in brought.items()})


def bring(projects: Sequence[Project]) -> dict[str, Path]:
    """Where each program of these projects is, brought first where it is missing.

    Says on standard error what it does and how long that took, and nothing when there is nothing to do. Safe to call
    from several processes at once: one works, the others wait and then find everything there. Raises BuildError.
    """
    cache = cache_folder()
    if any(not (cache / project.key).is_dir() for project in projects):
        cache.mkdir(parents=True, exist_ok=True)
        with one_builder(cache, sys.stderr):
            missing = [project for project in projects if not (cache / project.key).is_dir()]
            if missing:  # nobody else has brought them while we waited
                _bring(missing, cache)
    return {program: cache / project.key / program for project in projects for program in project.programs}


def _bring(missing: Sequence[Project], cache: Path) -> None:
    with Progress(sys.stderr) as progress:
        with ThreadPoolExecutor(len(missing)) as pool:
            fetched = pool.map(lambda each: _fetch(each, cache, progress), missing)
            left = [project for project, is_there in zip(missing, fetched, strict=True) if not is_there]
        recipes: dict[Recipe, list[Project]] = {}
        for project in left:
            recipes.setdefault(project.recipe, []).append(project)
        for recipe, projects in recipes.items():
            _build(recipe, projects, cache, progress)


def cache_folder() -> Path:
    """The user's cache folder for this project (XDG base directories)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "closeknit"


@contextmanager
def one_builder(cache: Path, progress: TextIO) -> Iterator[None]:
    with (cache / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another process is building the test control plane; waiting for it", file=progress, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(project: Project, cache: Path, progress: Progress) -> bool:
    """Whether the project's own release files are there now."""
    unfinished = _empty(cache, project.key)
    what = f"{project.name} {project.version}"
    try:
        with progress.of(f"taking {what} from its release", lambda: megabytes(unfinished), aloud=False):
            if not fetch(project.releases, project.version, unfinished):
                return False
    except WrongRelease as error:
        progress.say(f"{error}; building {project.name} instead")
        return False
    unfinished.rename(cache / project.key)
    progress.say(f"{what}: taken from its release")
    return True


def _build(recipe: Recipe, projects: Sequence[Project], cache: Path, progress: Progress) -> None:
    go = find_go()
    unfinished = _empty(cache, "build")
    environment = {"CGO_ENABLED": "0"}
    if recipe.with_seccomp:
        with progress.of("looking for libseccomp", lambda: "", aloud=False):
            environment = {"CGO_ENABLED": "1", **find_seccomp(_empty(cache, "seccomp"))}
    workshop = _Workshop(go, recipe.module, environment)
    # The linker drops debug tables (-s -w), so the compiler need not make any: etcd's 110 s of CPU time came to 91 s.
    flags = [
        *([f"-modfile={recipe.versions}"] if recipe.versions != PLAIN.versions else []),
        "-trimpath",
        "-buildvcs=false",
        "-gcflags=all=-dwarf=false",
        *([f"-tags={','.join(recipe.tags)}"] if recipe.tags else []),
        *(f"-ldflags={each.package}={each.ldflags}" for each in projects),
    ]
    packages = [project.package for project in projects]

    listed = unfinished / "list"
    to_compile = ["list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", *flags, *packages]
    with progress.of("fetching the sources", lambda: f"{_lines(unfinished / 'list.log')} modules"):
        workshop.run(to_compile, out=listed, log=unfinished / "list.log")
    count = _lines(listed)

    what = f"building {', '.join(f'{each.name} {each.version}' for each in projects)}"
    log = unfinished / "build.log"
    with progress.of(what, lambda: f"{_lines(log):,} of {count:,} packages"):
        workshop.run(["build", "-v", *flags, "-o", f"{unfinished}/", *packages], out=log, log=log)

    for project in projects:
        folder = _empty(cache, project.key)
        program = folder / project.programs[0]
        (unfinished / project.executable).rename(program)
        for other in project.programs[1:]:
            (folder / other).symlink_to(program.name)
        folder.rename(cache / project.key)
    shutil.rmtree(unfinished)


@dataclass(frozen=True, slots=True)
class _Workshop:
    """Go, where it works and with what."""

    go: Sequence[str]
    module: Path
    environment: Mapping[str, str]

    def run(self, arguments: Sequence[str], *, out: Path, log: Path) -> None:
        """Runs Go in the module. Raises BuildError."""
        environment = {
            "GOGC": "400",  # a fifth less compiling for memory that is there: etcd's 128 s of CPU time came to 104 s
            **os.environ,
            "GOTOOLCHAIN": "local",  # never download a compiler behind the user's back
            "GOFLAGS": "-mod=readonly",
            "GOWORK": "off",
            **self.environment,
        }
        with out.open("a") as output, log.open("a") as complaints:
            process = subprocess.Popen(
                [*self.go, *arguments], cwd=self.module, env=environment, stdout=output, stderr=complaints
            )
            try:
                process.wait()
            finally:
                process.terminate()  # nothing to one that has ended; uv hands it on to Go, as it could not a SIGKILL
                process.wait()
        if process.returncode != 0:
            raise BuildError(f"go {arguments[0]} in {self.module} failed:\n{_complaints(log)}")


def _complaints(log: Path) -> str:
    """What Go says beside the packages that are done, a word each, and the modules that it fetches."""
    lines = log.read_text().splitlines()
    return "\n".join(line for line in lines if " " in line and not line.startswith("go: downloading "))


def _lines(file: Path) -> int:
    try:
        return file.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def _empty(cache: Path, name: str) -> Path:
    """A folder to work in; what an interrupted run has left there goes. We hold the lock."""
    unfinished = cache / f".{name}.unfinished"
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
