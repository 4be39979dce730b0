"""The login of a context that says all by itself: a token, or a file with one, or a certificate.

What else a kubeconfig may say (a program to ask, a provider, a password) is for kubeconfig.py and its library, which
takes more than a second to import. A command is to answer in less.
"""

import asyncio
import ssl
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from closeknit.kube.errors import LoginError
from closeknit.kube.login.kubeconfig_files import OF_OTHER_SHAPE, Kubeconfig
from closeknit.kube.login.pod_login import TOKEN_S

_OF_CLUSTERS = {
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
    "proxy-url",
}
_OF_USERS = {
    "token",
    "tokenFile",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
}
_SAYS_NOTHING = {"extensions", "disable-compression"}


class PlainLogin:
    """One context of kubeconfigs, read once; of a token file again each minute."""

    def __init__(self, read: Kubeconfig, cluster: Mapping[str, Any], user: Mapping[str, Any], namespace: str) -> None:
        self._kubeconfig = read
        self._user = user
        self._read_at: float | None = None
        self._token = ""
        self.namespace = namespace
        self.host = str(cluster.get("server") or "").rstrip("/")
        self.tls = _tls(cluster, user)
        self.proxy: str | None = cluster.get("proxy-url") or None
        self.server_name: str | None = cluster.get("tls-server-name") or None

    @classmethod
    def of(cls, read: Kubeconfig, namespace: str) -> Self | None:
        """None where the context asks for more than this reads. Raises LoginError and OSError."""
        try:
            context = read.entry("context", read.context)
            cluster = read.entry("cluster", str(context.get("cluster") or ""))
            user = read.entry("user", str(context.get("user") or ""))
            is_plain = cluster.keys() <= _OF_CLUSTERS | _SAYS_NOTHING and user.keys() <= _OF_USERS | _SAYS_NOTHING
            if not is_plain or not str(cluster.get("server") or "").startswith(("https://", "http://")):
                return None
            return cls(read, cluster, user, str(context.get("namespace") or namespace))
        except (ssl.SSLError, *OF_OTHER_SHAPE) as error:  # an SSLError is an OSError, and knows no file
            raise read.unusable(error) from error

    async def authorization(self) -> str | None:
        """See `Login.authorization`."""
        now = asyncio.get_running_loop().time()
        if self._read_at is None or now - self._read_at >= TOKEN_S:
            self._token, self._read_at = _token(self._user), now
        return f"Bearer {self._token}" if self._token else None

    async def renew(self) -> None:
        """Reads the kubeconfigs again, and the token at the next request."""
        again = Kubeconfig.of(self._kubeconfig.files, self._kubeconfig.context)
        context = again.entry("context", again.context)
        self._user = again.entry("user", str(context.get("user") or ""))
        self._read_at = None

    def close(self) -> None:
        """Nothing is to be ended."""


def _token(user: Mapping[str, Any]) -> str:
    """As kubectl, by the file where both are said."""
    file = user.get("tokenFile")
    if not file:
        return str(user.get("token") or "")
    try:
        return Path(str(file)).read_text().strip()
    except OSError as error:
        raise LoginError(f"the token file {file} cannot be read: {error.strerror}") from error


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    with TemporaryDirectory(prefix="closeknit-login-") as folder:  # OpenSSL reads keys from files alone
        context = ssl.create_default_context(cafile=_path(cluster, "certificate-authority", Path(folder)))
        certificate, key = (_path(user, name, Path(folder)) for name in ("client-certificate", "client-key"))
        if certificate is not None:
            context.load_cert_chain(certificate, keyfile=key, password=lambda: "")
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _path(user: Mapping[str, Any], name: str, folder: Path) -> Path | None:
    data, file = user.get(f"{name}-data"), user.get(name)
    if not data:
        return Path(str(file)) if file else None
    path = folder / name
    path.touch(mode=0o600)
    path.write_bytes(b64decode(data, validate=True))
    return path
