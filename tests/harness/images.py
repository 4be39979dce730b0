"""The images of operator and agent, built from their Dockerfiles without a registry, and kept by what they are made of.

`python -m harness.images` is what `make images` calls. buildah reads the same Dockerfile as any other builder; only the
base is another, the stand-in of `harness.python_base`. Each image is an OCI archive that containerd imports:

    node.import_image(image_archive(OPERATOR))   # named OPERATOR.name
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.build import cache_folder
from harness.progress import Progress
from harness.python_base import NAME, VERSION, NoBase, base_digest, write_base

ROOT = Path(__file__).parents[2]
_KEPT = 6  # archives of one image, those used last; each is 58 MB, and every change of a source makes a new one
_LAYERS_AT_MOST = 200  # in the store that builds share: both images have some 40, a change of a source makes 16 more
_POLICY = {"default": [{"type": "insecureAcceptAnything"}]}  # a distribution's own may be missing, and we pull nothing


class NoImages(Exception):  # noqa: N818 - what it says, like NoNodes
    """This machine cannot build images; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Image:
    """One of our images."""

    program: str
    dockerfile: Path

    @property
    def name(self) -> str:
        """The name that the archive gives it: the chart's repository, and a tag that is never published."""
        return f"localhost/closeknit/{self.program}:test"


OPERATOR = Image("operator", ROOT / "operator" / "Dockerfile")
AGENT = Image("agent", ROOT / "node-agent" / "Dockerfile")
IMAGES = (OPERATOR, AGENT)


@dataclass(frozen=True, slots=True)
class BuiltLayer:
    """One layer of a built image."""

    digest: str
    unpacked_bytes: int
    made_by: str


def image_archive(image: Image) -> Path:
    """The image as an OCI archive, built first where it is missing. Safe to call from several processes at once.

    Raises NoImages.
    """
    folder = cache_folder() / "images"
    archive = folder / f"{image.program}-{_key(image)}.tar"
    if not archive.exists():
        if os.geteuid() != 0 or shutil.which("buildah") is None:
            raise NoImages("images need root and buildah (Debian: apt-get install --no-install-recommends buildah)")
        if f"python:{VERSION}-" not in image.dockerfile.read_text():
            raise NoImages(f"{image.dockerfile} is for another Python than this machine's {VERSION}")
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():  # nobody else has built it while we waited
                _build(image, folder, archive)
                _forget(folder, image)
    archive.touch()  # it is in use: others that build now leave it
    return archive


def layers(archive: Path) -> list[BuiltLayer]:
    """The layers of an archive, the base's first."""
    with tarfile.open(archive) as tar:
        (named,) = _json(tar, "index.json")["manifests"]
        manifest = _json(tar, _blob(named))
        made_by = [each for each in _json(tar, _blob(manifest["config"]))["history"] if not each.get("empty_layer")]
        found = []
        for layer, step in zip(manifest["layers"], made_by, strict=True):
            with tarfile.open(fileobj=tar.extractfile(_blob(layer))) as files:
                unpacked = sum(file.size for file in files)
            found.append(
                BuiltLayer(layer["digest"], unpacked, step["created_by"].removeprefix("/bin/sh -c #(nop) ").strip())
            )
    return found


def manifest_digest(archive: Path) -> str:
    """What an image is called by where its name counts for nothing: `repository@sha256:...`."""
    with tarfile.open(archive) as tar:
        (named,) = _json(tar, "index.json")["manifests"]
    return str(named["digest"])


def context_files() -> Iterator[Path]:
    """What a builder is sent: the files that .dockerignore lets through, in order."""
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            path = ROOT / line[1:]
            found = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
            yield from (each for each in found if "__pycache__" not in each.parts)


def _key(image: Image) -> str:
    """Names all that the archive is made of."""
    digest = hashlib.sha256()
    try:
        digest.update(base_digest().encode())
    except NoBase as reason:
        raise NoImages(str(reason)) from reason
    for file in (Path(__file__), image.dockerfile, ROOT / ".dockerignore", *context_files()):
        digest.update(f"\0{file.relative_to(ROOT)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _build(image: Image, folder: Path, archive: Path) -> None:
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)  # of somebody who was ended
    work.mkdir()
    write_base(work / "base.tar")
    steps = sum(line.split(" ")[0].isupper() for line in image.dockerfile.read_text().splitlines())
    buildah = _Buildah(folder / "store", work)
    with (
        Progress(sys.stderr) as progress,
        progress.of(
            f"building the {image.program}'s image", lambda: f"{buildah.log().count('STEP ')} of {steps} steps"
        ),
    ):
        buildah.run("pull", f"oci-archive:{work}/base.tar")
        buildah.run(
            "build",
            "--isolation=chroot",  # needs no runtime of containers
            "--network=host",
            "--pull-never",
            "--layers",
            "--timestamp=0",
            "--identity-label=false",
            f"--build-arg=PYTHON={NAME}",
            f"--tag={image.name}",
            f"--file={image.dockerfile}",
            str(ROOT),
        )
        buildah.run("push", image.name, f"oci-archive:{work}/image.tar:{image.name}")
    (work / "image.tar").rename(archive)
    shutil.rmtree(work)


class _Buildah:
    """buildah on a store of our own, which keeps the layers that the next build begins with."""

    def __init__(self, store: Path, work: Path) -> None:
        self._command = ["buildah", f"--root={store}", f"--runroot={store}-run"]
        self._log = work / "buildah.log"
        self._policy = work / "policy.json"
        self._policy.write_text(json.dumps(_POLICY))
        self._call("rm", "--all")  # of a build that was ended
        if len(list(store.glob("*-layers/*.tar-split.gz"))) > _LAYERS_AT_MOST:
            self._call("rmi", "--all", "--force")

    def run(self, command: str, *arguments: str) -> None:
        """A command that makes or moves an image. Raises NoImages."""
        self._call(command, f"--signature-policy={self._policy}", *arguments)

    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text(errors="replace")

    def _call(self, *arguments: str) -> None:
        with self._log.open("a") as log:
            done = subprocess.run([*self._command, *arguments], stdout=log, stderr=log, check=False)
        if done.returncode:
            raise NoImages(f"buildah {arguments[0]} failed:\n{self.log().strip()[-2000:]}")


def _forget(folder: Path, image: Image) -> None:
    """Removes the archives that have not been used for longest."""
    archives = sorted(folder.glob(f"{image.program}-*.tar"), key=lambda path: path.stat().st_mtime)
    for old in archives[:-_KEPT]:
        old.unlink()


def _json(tar: tarfile.TarFile, path: str) -> Any:
    file = tar.extractfile(path)
    assert file is not None  # an archive that buildah wrote
    return json.load(file)


def _blob(described: Any) -> str:
    return f"blobs/sha256/{described['digest'].removeprefix('sha256:')}"


def main() -> int:
    """Builds both and says where they are and how large."""
    try:
        for image in IMAGES:
            archive = image_archive(image)
            print(f"{image.name}  {manifest_digest(archive)}\n{archive}")
            for layer in layers(archive):
                print(f"  {layer.unpacked_bytes / 1e6:5.1f} MB  {layer.digest[7:19]}  {layer.made_by[:80]}")
    except NoImages as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
