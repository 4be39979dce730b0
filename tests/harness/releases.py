"""The files that projects publish themselves: taken instead of many minutes of compiling, where they can be had.

A file counts only if it has the pinned checksum. Whoever cannot reach them (no network, a proxy that says no, a server
that hangs) hears nothing of it: the build that follows makes the same program.
"""

import hashlib
import platform
import shutil
import sys
import tarfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from threading import Event

SILENCE_S = 5.0  # without an answer, or another byte of it: nobody is there who would be quicker than a build
DEADLINE_S = 300.0  # what takes longer than this saves nothing over a build of six to ten minutes
CHUNK_BYTES = 1 << 20

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # of platform.machine()


@dataclass(frozen=True, slots=True)
class Release:
    """One published program."""

    program: str
    url: str
    """With {version} and {architecture} to fill in."""
    sha256: Mapping[str, str]
    """Of what the url gives, by Go's name of the architecture."""
    inside: str | None = None
    """Where the url gives a tar archive, the program's path in it, with the same two to fill in."""


class WrongRelease(Exception):  # noqa: N818 - it says what it is
    """A file that came whole and is not the one that was pinned, or not what was thought to be pinned."""


def architecture() -> str | None:
    """Go's name of this machine's architecture; None where nothing is published for it."""
    return _ARCHITECTURES.get(platform.machine()) if sys.platform == "linux" else None


def fetch(releases: Sequence[Release], version: str, folder: Path) -> bool:
    """Puts every release into the folder, all at once. False where one cannot be had; then the folder holds none.

    Raises WrongRelease.
    """
    here = architecture()
    if here is None or not releases or any(here not in each.sha256 for each in releases):
        return False
    downloads = _Downloads(folder, time.monotonic() + DEADLINE_S)
    try:
        with ThreadPoolExecutor(len(releases)) as pool:
            list(pool.map(lambda each: downloads.take(each, version, here), releases))
    except (OSError, HTTPException):
        return False
    else:
        for each in releases:
            (folder / f"{each.program}.part").rename(folder / each.program)
        return True
    finally:
        for part in folder.glob("*.part"):
            part.unlink()


def megabytes(folder: Path) -> str:
    """How much of the downloads into this folder has come."""
    sizes = []
    for part in folder.glob("*.part"):
        with suppress(FileNotFoundError):  # whole, and renamed by now
            sizes.append(part.stat().st_size)
    return f"{sum(sizes) / 1e6:.0f} MB"


class _Downloads:
    """Several at once; the first that fails ends the others."""

    def __init__(self, folder: Path, deadline: float) -> None:
        self._folder = folder
        self._deadline = deadline
        self._failed = Event()

    def take(self, release: Release, version: str, architecture: str) -> None:
        """One program, checked and executable, under its name with `.part` behind it."""
        try:
            self._take(release, version, architecture)
        except BaseException:
            self._failed.set()
            raise

    def _take(self, release: Release, version: str, architecture: str) -> None:
        url = release.url.format(version=version, architecture=architecture)
        digest = hashlib.sha256()
        part = self._folder / f"{release.program}.part"
        with urllib.request.urlopen(url, timeout=SILENCE_S) as answer, part.open("wb") as file:  # noqa: S310 - pinned
            while chunk := answer.read1(CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
                if self._failed.is_set() or time.monotonic() > self._deadline:
                    raise TimeoutError(f"{url} is given up")
            if answer.length:
                raise ConnectionError(f"{url} ended {answer.length} bytes too early")
        if digest.hexdigest() != release.sha256[architecture]:
            raise WrongRelease(f"{url} does not have the pinned checksum")
        if release.inside is not None:
            inside = release.inside.format(version=version, architecture=architecture)
            if not _unpack(part, inside):
                raise WrongRelease(f"{url} holds no {inside}")
        part.chmod(0o755)


def _unpack(archive: Path, inside: str) -> bool:
    """Whether the archive has such a file, which now stands in its place."""
    program = archive.with_suffix(".program.part")
    try:
        with tarfile.open(archive) as files, program.open("wb") as out:
            found = files.extractfile(inside)
            if found is None:  # a folder
                return False
            shutil.copyfileobj(found, out)
    except (tarfile.TarError, KeyError):
        return False
    program.replace(archive)
    return True
