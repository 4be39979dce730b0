"""Programs of Debian's packages, unpacked into the user's cache folder and not installed: no service starts."""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.build import cache_folder


class NoPackages(Exception):  # noqa: N818 - what it says, like NoFrameworks
    """This machine cannot have them; the message says which, and what apt says."""


def unpacked(name: str, packages: Sequence[str]) -> Path:
    """The folder `name` of the cache with the files of these packages, brought first where it is missing. Safe to call
    from several processes at once. Raises NoPackages."""
    folder = cache_folder() / name
    if not folder.exists():
        cache_folder().mkdir(parents=True, exist_ok=True)
        with (cache_folder() / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():  # nobody else has brought it while we waited
                _unpack(folder, packages)
    return folder


def _unpack(folder: Path, packages: Sequence[str]) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoPackages(f"Debian's {', '.join(packages)} cannot be had: PATH has no apt-get and no dpkg-deb")
    with tempfile.TemporaryDirectory(dir=cache_folder()) as temporary:
        download = ["apt-get", "download", "-qq", *packages]
        if subprocess.run(download, cwd=temporary, capture_output=True, check=False).returncode:
            # Without lists of packages, as on a fresh machine.
            subprocess.run(["apt-get", "update", "-qq"], capture_output=True, check=False)
            done = subprocess.run(download, cwd=temporary, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoPackages(f"Debian's {', '.join(packages)} cannot be had: {done.stderr.strip()[-500:]}")
        files = Path(temporary) / "unpacked"
        for package in sorted(Path(temporary).glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", package, files], check=True)
        files.rename(folder)
