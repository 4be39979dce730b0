"""TLS of the web server: with a certificate from files, which may be renewed, or one that the process made itself.

Beyond localhost a scraper shows its token, which must not cross the network in the clear. A certificate that we signed
ourselves keeps it from everybody who only listens. Somebody who can answer in our place gets it, unless the scraper can
check the certificate: `--metrics-certificate`.
"""

import asyncio
import logging
import ssl
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Protocol

CERTIFICATE, KEY = "tls.crt", "tls.key"
"""As a Secret of the type kubernetes.io/tls is mounted, cert-manager's among them."""
LOOK_AGAIN_S = 30.0  # a kubelet brings a renewed Secret within a minute or two, and the old one is good for days yet

_log = logging.getLogger(__name__)


class CertificateError(Exception):
    """There is no certificate to serve with; the message says why, and what to do."""


class Certificate(Protocol):
    """What the web server proves itself with."""

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        ...


class OwnCertificate:
    """Made at the start of the process, and gone with it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    @classmethod
    async def made(cls) -> "OwnCertificate":
        """Raises CertificateError."""
        program = (sys.executable, "-P", "-m", "closeknit.runtime.own_certificate")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*program, stdout=pipe, stderr=pipe)
        pem, words = await process.communicate()
        if process.returncode:
            last = words.decode(errors="replace").strip().rpartition("\n")[2]
            raise CertificateError(f"no certificate could be made: {last}")
        with TemporaryDirectory(prefix="closeknit-tls-") as folder:  # OpenSSL reads keys from files alone
            path = Path(folder) / "pair.pem"
            path.touch(mode=0o600)
            path.write_bytes(pem)
            return cls(_loaded(path, path))

    def context(self) -> ssl.SSLContext:
        """See Certificate."""
        return self._context


class MountedCertificate:
    """Read from a folder, and again when it has changed."""

    def __init__(self, folder: Path) -> None:
        """Raises CertificateError."""
        self._folder = folder
        self._state = self._stated()
        self._context = self._read()
        self._looked_at = monotonic()

    def context(self) -> ssl.SSLContext:
        """See Certificate. Files that cannot be used are told of, and the ones before are used on."""
        if monotonic() - self._looked_at >= LOOK_AGAIN_S:
            self._looked_at = monotonic()
            state = self._stated()
            if state != self._state:
                self._state = state
                try:
                    self._context = self._read()
                except CertificateError as error:
                    _log.warning("the certificate was not renewed", extra={"error": str(error)})
        return self._context

    def _read(self) -> ssl.SSLContext:
        try:
            return _loaded(self._folder / CERTIFICATE, self._folder / KEY)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise CertificateError(
                f"{self._folder}: {error}: it wants {CERTIFICATE} and {KEY}, as PEM, that belong together"
            ) from error

    def _stated(self) -> tuple[tuple[int, int], ...]:
        return tuple(_version(self._folder / name) for name in (CERTIFICATE, KEY))


def _version(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


def _loaded(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # what Prometheus of 2020 and kubelets speak
    # Without a callback OpenSSL asks at the terminal for the password of a key that has one.
    context.load_cert_chain(certificate, key, password=lambda: "")
    return context
