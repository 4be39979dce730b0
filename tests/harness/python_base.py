"""A stand-in for the base of our images, where no registry can be reached: this machine's Python as an image.

What it has of Python is where the official image has it, in /usr/local, with pip and without bytecode. The rest is what
that and the Dockerfiles' RUN lines need: a shell, four programs, shared libraries and the machine's certificates.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from harness.node.image import Layer, write_image

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
NAME = f"localhost/closeknit/python-stand-in:{VERSION}"
BUILD_PROGRAMS = ("sh", "rm", "cp", "mv", "mkdir", "find")
"""What the Dockerfiles' RUN lines call, beside Python."""
# What wheels may be linked against (manylinux), and every Linux has.
_MANYLINUX = (
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
    "libutil.so.1",
)
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# The official image has neither; and none of this is ever imported by ours.
_LEFT_OUT = {"__pycache__", "site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3"}
# Two of the official image's. It has no user 1000, as which our images run: nothing may look for that one's name.
_USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
_PIP_CONFIG = f"[global]\ncert = {_CERTIFICATES}\n"  # a proxy with a certificate of its own: the machine knows it


class NoBase(Exception):  # noqa: N818 - what it says, like NoNodes
    """This machine's Python makes no image; the message says why."""


def base_files() -> dict[str, Path | bytes | str]:
    """What is at each path of the image: a copy of a file, these bytes, or a symbolic link there. Raises NoBase."""
    prefix = Path(sys.base_prefix)
    python = prefix / "bin" / f"python{VERSION}"
    library = prefix / "lib" / f"python{VERSION}"
    programs = {f"bin/{name}": _program(name) for name in BUILD_PROGRAMS}
    files: dict[str, Path | bytes | str] = {
        f"usr/local/bin/python{VERSION}": python,
        "usr/local/bin/python3": f"python{VERSION}",
        "usr/local/bin/python": f"python{VERSION}",
        **programs,
        "etc/pip.conf": _PIP_CONFIG.encode(),
        "etc/passwd": _USERS.encode(),
        "etc/nsswitch.conf": b"hosts: files dns\n",
    }
    if _CERTIFICATES.exists():
        files[str(_CERTIFICATES).lstrip("/")] = _CERTIFICATES
    modules = [path for path in _below(library) if path.suffix != ".a"]
    files |= {f"usr/local/lib/python{VERSION}/{path.relative_to(library)}": path for path in modules}
    files |= {f"usr/local/lib/python{VERSION}/site-packages/{name}": body for name, body in _pip(library)}
    extensions = [path for path in modules if ".so" in path.suffixes]
    return files | _shared_libraries([python, *extensions, *programs.values()])


def write_base(archive: Path) -> None:
    """Writes the image. Raises NoBase."""
    layer = Layer()
    layer.add_folder("tmp", 0o1777)
    for path, what in sorted(base_files().items()):
        if isinstance(what, str):
            layer.add_link(path, what)
        else:
            is_program = isinstance(what, Path) and bool(what.stat().st_mode & 0o111)
            content = what.read_bytes() if isinstance(what, Path) else what
            layer.add_file(path, content, mode=0o755 if is_program else 0o644)
    write_image(archive, NAME, layer, ["python3"], environment=["PATH=/usr/local/bin:/bin", "LANG=C.UTF-8"])


def base_digest() -> str:
    """Of everything that the image has in it. Raises NoBase."""
    digest = hashlib.sha256()
    for path, what in sorted(base_files().items()):
        digest.update(f"{path}\0".encode())
        digest.update(
            what.read_bytes() if isinstance(what, Path) else what if isinstance(what, bytes) else what.encode()
        )
    return digest.hexdigest()


def _below(library: Path) -> Iterator[Path]:
    for path in sorted(library.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith(("config-", "_tkinter")):
            continue
        if path.is_dir():
            yield from _below(path)
        else:
            yield path


def _pip(library: Path) -> Iterator[tuple[str, bytes]]:
    """The files of the pip that comes with Python."""
    wheels = sorted((library / "ensurepip" / "_bundled").glob("pip-*.whl"))
    if not wheels:
        raise NoBase(f"{library}/ensurepip has no pip: a Python that its distribution has split makes no image")
    with zipfile.ZipFile(wheels[-1]) as wheel:
        for name in wheel.namelist():
            if not name.endswith("/"):
                yield name, wheel.read(name)


def _program(name: str) -> Path:
    found = shutil.which(name, path="/bin:/usr/bin")
    if found is None:
        raise NoBase(f"this machine has no {name}")
    return Path(found).resolve()


def _shared_libraries(programs: Sequence[Path]) -> dict[str, Path]:
    """What these are linked against. All of it lies where the C library does, for the loader looks there first."""
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    found = dict(_linked(said.splitlines()))
    libc = found.get("libc.so.6")
    if libc is None:
        raise NoBase("ldd names no libc.so.6 of Python's: only glibc is known here")
    found |= {name: path for name in _MANYLINUX if (path := libc.parent / name).exists()}
    folder = str(libc.parent).lstrip("/")
    loaders = {str(path).lstrip("/"): path for name, path in found.items() if name.startswith("/")}
    return {f"{folder}/{name}": path for name, path in found.items() if not name.startswith("/")} | loaders


def _linked(lines: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """(name, path) of each library of ldd's lines; of the loader its path twice."""
    for line in lines:
        if match := re.match(r"\t(\S+) => (/\S+) \(", line):
            yield match[1], Path(match[2])
        elif match := re.match(r"\t(/\S+) \(", line):
            yield match[1], Path(match[1])
