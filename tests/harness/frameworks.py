"""Brings the frameworks that closeknit launches, each into an environment of its own: their own code is what the launch
contracts are tested against, and what runs in Pods on real nodes.

`python -m harness.frameworks` brings all of them. Each is made once, by uv, of the pinned packages in
config/frameworks/<name>.txt, as `~/.cache/closeknit/framework-<name>-<hash>`: a folder that a Pod can mount under the
same path beside the machine's /usr. They stand on Debian's Python, because its PyTorch has no CUDA in it (100 MB where
the registry's needs 3 GB) and is seen by those that need it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.build import cache_folder
from harness.progress import Progress

PYTHON = Path("/usr/bin/python3")
CONFIG = Path(__file__).parent / "config" / "frameworks"
DEBIAN = ("python3-torch", "openmpi-bin", "openssh-server", "python3-mpi4py")
"""What comes from Debian's packages: PyTorch 1.13 and its torchrun, Open MPI 4.1, sshd. `apt-get install` them.

That torchrun starts nothing under Debian's Python 3.11, whose flags do not list the value 0 any more, unless
PET_REDIRECTS=1 and PET_TEE=1 are set: then stdout goes to a file and from there on to stdout.
"""
HOROVOD_NEEDS = ("libtorch-dev", "pybind11-dev", "cmake", "g++")
"""What Horovod is built with, beside them."""


_WHOLE = "whole"  # a file that is written last


class NoFrameworks(Exception):  # noqa: N818 - what it says, like NoNodes
    """This machine cannot have them; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Built:
    """A package that comes as source and is built against Debian's PyTorch; the pinned list has its dependencies."""

    requirement: str
    settings: Mapping[str, str]
    build_requirements: Sequence[str] = ("setuptools==65.7.0", "wheel==0.45.1")


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment."""

    name: str
    sees_debian: bool = False
    """Whether Debian's packages, PyTorch among them, can be imported in it."""
    built: Built | None = None
    needs: Sequence[str] = field(default=())
    """Debian packages that it cannot do without."""

    @property
    def folder(self) -> Path:
        """Where it is, or will be."""
        recipe = (str(self.sees_debian), repr(self.built), (CONFIG / f"{self.name}.txt").read_text())
        digest = hashlib.sha256("\0".join(recipe).encode()).hexdigest()
        return cache_folder() / f"framework-{self.name}-{digest[:12]}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def is_there(self) -> bool:
        """Whether it was made to its end."""
        return (self.folder / _WHOLE).exists()


JAX = Environment("jax")
TENSORFLOW = Environment("tensorflow")
OPENMPI = Environment("openmpi")
"""Open MPI 5, without Debian's 4."""
MPICH = Environment("mpich")
DEEPSPEED = Environment(
    "deepspeed", sees_debian=True, built=Built("deepspeed==0.19.8", {"DS_BUILD_OPS": "0"}), needs=("python3-torch",)
)
HOROVOD = Environment(
    "horovod",
    sees_debian=True,
    built=Built(
        "horovod==0.28.1",
        {
            "HOROVOD_WITH_PYTORCH": "1",
            "HOROVOD_WITH_GLOO": "1",
            "HOROVOD_WITHOUT_MPI": "1",
            "HOROVOD_WITHOUT_TENSORFLOW": "1",
            "HOROVOD_WITHOUT_MXNET": "1",
        },
    ),
    needs=("python3-torch", *HOROVOD_NEEDS),
)
ENVIRONMENTS = (JAX, TENSORFLOW, OPENMPI, MPICH, DEEPSPEED, HOROVOD)


def bring(environment: Environment) -> Path:
    """The interpreter of the environment, made first where it is missing. Safe to call from several processes at once.

    Raises NoFrameworks.
    """
    if not environment.is_there:
        missing = [package for package in environment.needs if not has_debian(package)]
        if missing:
            raise NoFrameworks(f"{environment.name} needs Debian's {', '.join(missing)}: apt-get install them")
        if not PYTHON.exists():
            raise NoFrameworks(f"{environment.name} stands on {PYTHON}, which is not there")
        cache = cache_folder()
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"framework-{environment.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not environment.is_there:  # nobody else has made it while we waited
                _make(environment)
    return environment.python


def has_debian(package: str) -> bool:
    """Whether a Debian package is installed."""
    said = subprocess.run(["dpkg-query", "--show", "--showformat=${Status}", package], capture_output=True, check=False)
    return said.stdout.endswith(b" installed")


def _make(environment: Environment) -> None:
    """Makes it where it stays, for its scripts name their interpreter by path."""
    folder = environment.folder
    shutil.rmtree(folder, ignore_errors=True)  # of somebody who was ended
    uv = os.environ.get("UV") or shutil.which("uv")  # `uv run` says in UV where it is itself
    if uv is None:
        raise NoFrameworks(f"{environment.name} is brought by uv, which is not there")
    with Progress(sys.stderr) as progress, progress.of(f"bringing {environment.name}", lambda: "", aloud=False):
        try:
            system = ["--system-site-packages"] if environment.sees_debian else []
            _run([uv, "venv", "--quiet", f"--python={PYTHON}", *system, str(folder)])
            pip = [
                uv,
                "pip",
                "install",
                "--quiet",
                "--system-certs",
                "--compile-bytecode",
                f"--python={environment.python}",
            ]
            _run([*pip, f"--requirements={CONFIG / f'{environment.name}.txt'}"])
            if environment.built is not None:
                _run([*pip, *environment.built.build_requirements])
                built = [*pip, "--no-deps", "--no-build-isolation", environment.built.requirement]
                path = f"{folder / 'bin'}:{os.environ['PATH']}"
                _run(built, {**environment.built.settings, "PATH": path})
            (folder / _WHOLE).touch()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _run(command: Sequence[str], settings: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(settings or {})})
    if done.returncode:
        raise NoFrameworks(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-2000:]}")


def main() -> int:
    """Brings all of them; says which could not be had, whose tests are skipped then."""
    for environment in ENVIRONMENTS:
        try:
            bring(environment)
        except NoFrameworks as reason:
            print(f"{environment.name}: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
