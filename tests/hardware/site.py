"""Where everything is, on this machine and in the containers: the machine's own Python and PyTorch, and our sources."""

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from harness.node.host_python import ROOT, SOURCES

IMAGE = "closeknit.dev/host:v1"
AGENT, SIDECAR, SMI = "/programs/closeknit-agent", "/programs/closeknit-sidecar", "/programs/nvidia-smi"
_HOST = "/host"
SHARED = f"{_HOST}/shared"  # a folder that the course writes, and every container sees


@dataclass(frozen=True, slots=True)
class Site:
    """A machine with GPUs, or without: there they are pretended."""

    pretended: bool
    shared: Path
    packages: Path
    """Our Python packages."""
    trainer: str
    """The Python that has PyTorch."""

    @staticmethod
    def here(folder: Path, *, pretended: bool) -> "Site":
        """This machine; `folder` is the course's own."""
        packages = Path(os.environ.get("HARDWARE_PACKAGES") or sysconfig.get_path("platlib"))
        trainer = "/usr/bin/python3" if pretended else "python3"
        shared = folder / "shared"
        shared.mkdir(parents=True)
        return Site(pretended, shared, packages, trainer)

    @property
    def is_watched(self) -> bool:
        """Whether ranks talk by NCCL, which tells of one that has stopped."""
        return not self.pretended

    @property
    def mounts(self) -> dict[str, Path]:
        """What a container with a GPU sees. The driver is a mount of its own below /usr, and comes along."""
        own = ["/usr", "/opt", "/etc/ld.so.cache", "/etc/alternatives"]
        return {
            **{path: Path(path) for path in own if Path(path).exists()},
            f"{_HOST}/python": Path(sys.base_prefix),
            f"{_HOST}/packages": self.packages,
            f"{_HOST}/tree": ROOT,
            SHARED: self.shared,
        }

    @property
    def host_folders(self) -> dict[str, Path]:
        """What a container without a GPU sees: the gang's sidecar is one."""
        return {seen: folder for seen, folder in self.mounts.items() if seen != SHARED and folder.is_dir()}

    @property
    def environment(self) -> dict[str, str]:
        """What a container does not inherit of this machine."""
        path = os.environ["PATH"] if not self.pretended else "/usr/bin:/bin"
        found = {"PATH": f"/programs:{path}", "HOME": "/tmp"}  # noqa: S108 - the container's own
        if not self.pretended and "LD_LIBRARY_PATH" in os.environ:
            found["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        return found

    def script(self, module: str) -> bytes:
        """A program of the image: `python -m` with this."""
        path = ":".join([f"{_HOST}/packages", *(f"{_HOST}/tree/{source}" for source in SOURCES)])
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        libraries = f'LD_LIBRARY_PATH="{_HOST}/python/lib:$LD_LIBRARY_PATH"'
        program = f"exec {_HOST}/python/bin/python{version} -B -S -m {module}"
        return f'#!/bin/sh\nexport PYTHONPATH={path} {libraries}\n{program} "$@"\n'.encode()


def in_container(file: Path) -> str:
    """Where a container sees a file of the sources."""
    return f"{_HOST}/tree/{file.relative_to(ROOT)}"
