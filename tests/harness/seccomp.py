"""C's libseccomp, which runc is linked with: the machine's own, else Debian's package, unpacked and not installed."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness.toolchain import BuildError

PACKAGE = "libseccomp-dev"


class NoCompiler(BuildError):  # noqa: N818 - it says what it is
    """This machine has not what runc is built with; the message says what to install."""


def find_seccomp(folder: Path) -> dict[str, str]:
    """The variables by which Go's C compiler finds libseccomp's header and static library.

    Where the machine has none and apt can be had, they are unpacked into `folder`. Raises BuildError.
    """
    for program in ("cc", "pkg-config"):
        if shutil.which(program) is None:
            raise NoCompiler(f"runc is built with C, and PATH has no {program}: install gcc and pkg-config")
    if _has_static_library(os.environ):
        return {}
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoCompiler("runc is built with libseccomp and its static library: install them (Debian: libseccomp-dev)")
    # The file belongs to root, which apt's own user cannot read: it then says so and downloads it all the same.
    _run("apt-get", "download", "--quiet", PACKAGE, folder=folder)
    archives = [str(path) for path in folder.glob("*.deb")]
    _run("dpkg-deb", "--extract", *archives, str(folder), folder=folder)
    found = next(folder.rglob("libseccomp.pc"), None)
    variables = {"PKG_CONFIG_LIBDIR": str(found.parent), "PKG_CONFIG_SYSROOT_DIR": str(folder)} if found else {}
    if not _has_static_library(os.environ | variables):
        raise BuildError(f"Debian's {PACKAGE} holds no static library; install libseccomp with one")
    return variables


def _has_static_library(environment: Mapping[str, str]) -> bool:
    asked = ["pkg-config", "--variable=libdir", "libseccomp"]
    said = subprocess.run(asked, capture_output=True, text=True, env=environment, check=False)
    root = environment.get("PKG_CONFIG_SYSROOT_DIR", "/")
    folder = Path(root, said.stdout.strip().removeprefix(root).lstrip("/"))  # some put the root in front, some do not
    return said.returncode == 0 and (folder / "libseccomp.a").is_file()


def _run(*command: str, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command[:2])} failed, and runc needs libseccomp:\n{done.stderr.strip()[-500:]}")
