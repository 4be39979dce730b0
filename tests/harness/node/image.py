"""Images without a registry: an OCI layout in a tar archive, of one layer that Python writes."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.releases import architecture

IMAGE = "closeknit.dev/inmate:1"  # harness/go-node/inmate, and nothing else
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"


def write_inmate_image(archive: Path, inmate: Path) -> None:
    """The image of every test's containers and of the sandbox: the program, /tmp, and a user 1000."""
    layer = Layer()
    layer.add_file("inmate", inmate.read_bytes(), mode=0o755)
    layer.add_etc()
    write_image(archive, IMAGE, layer, ["/inmate"])


class Layer:
    """What is in an image."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115 - closed in content()

    def add_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """A file of root's."""
        entry = tarfile.TarInfo(path)
        entry.size, entry.mode = len(content), mode
        self._tar.addfile(entry, io.BytesIO(content))

    def add_folder(self, path: str, mode: int = 0o755) -> None:
        """An empty folder of root's."""
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        self._tar.addfile(entry)

    def add_link(self, path: str, target: str) -> None:
        """A symbolic link."""
        entry = tarfile.TarInfo(path)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        self._tar.addfile(entry)

    def add_etc(self) -> None:
        """What a program expects of any system: names for root, user 1000 and who sshd wants to be, and a /tmp."""
        self.add_folder("tmp", 0o1777)
        users = ("root:x:0:0::/tmp:/bin/sh", "user:x:1000:1000::/tmp:/bin/sh", "sshd:x:100:65534::/run/sshd:/none")
        self.add_file("etc/passwd", "".join(f"{user}\n" for user in users).encode())
        self.add_file("etc/group", b"root:x:0:\nuser:x:1000:\n")

    def content(self) -> bytes:
        """The tar archive; nothing can be added any more."""
        self._tar.close()
        return self._buffer.getvalue()


def write_image(
    archive: Path, name: str, layer: Layer, entrypoint: Sequence[str], environment: Sequence[str] = ()
) -> None:
    """Writes the archive that `ctr images import` takes."""
    content = layer.content()
    blobs: dict[str, bytes] = {}

    def blob(kind: str, body: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(body).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = body
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(body)}

    packed = blob(f"{_LAYER}+gzip", gzip.compress(content, 1, mtime=0))
    system = {"architecture": architecture() or "unknown", "os": "linux"}
    root = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]}
    run = {"Entrypoint": list(entrypoint), "Env": list(environment)}
    history = [{"created_by": "harness.node.image"}]  # a builder counts its layers by it
    config = blob(_CONFIG, _json(system | {"config": run, "rootfs": root, "history": history}))
    manifest = blob(
        _MANIFEST, _json({"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": [packed]})
    )
    named = manifest | {"annotations": {"io.containerd.image.name": name}}
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": [named]}),
        **blobs,
    }
    with tarfile.open(archive, "w") as tar:
        for path, body in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()
