"""The login of a context by a token, or a file with one, or a certificate, or by a program that says these.

What else a kubeconfig may say (a provider, a password) is for kubeconfig.py and its library, which takes more than a
second to import. A command is to answer in less.
"""

import asyncio
import logging
import re
import ssl
from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from closeknit.kube.errors import LoginError
from closeknit.kube.login.kubeconfig_files import OF_OTHER_SHAPE, Kubeconfig
from closeknit.kube.login.pod_login import TOKEN_S

if TYPE_CHECKING:
    from closeknit.kube.login.login_program import Credential, LoginProgram

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
    "exec",
}
MOST_TOKEN_BYTES = 1 << 20  # Go's server takes headers of 1 MiB
_SAYS_NOTHING = {"extensions", "disable-compression"}
# Of a certificate's DER: when it begins and when it ends, which stand together nowhere else in it (RFC 5280, 4.1.2.5).
_TIME = rb"(?:\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z)"
_VALIDITY = re.compile(_TIME + _TIME)

_log = logging.getLogger(__name__)


class PlainLogin:
    """One context of kubeconfigs, read once; of a token file again each minute."""

    def __init__(self, read: Kubeconfig, cluster: Mapping[str, Any], user: Mapping[str, Any], namespace: str) -> None:
        self._kubeconfig = read
        self._cluster = cluster
        self._user = user
        self._read_at: float | None = None
        self._token = ""
        self._is_refused = False
        self._program = self._program_of(user)
        self._credential: Credential | None = None
        self._asking = asyncio.Lock()
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
        program = self._program
        token = self._token_now() if program is None else (await self._credential_of(program)).token
        return f"Bearer {token}" if token else None

    async def renew(self) -> None:
        """Reads the kubeconfigs again, and the token or the program at the next request."""
        again = Kubeconfig.of(self._kubeconfig.files, self._kubeconfig.context)
        context = again.entry("context", again.context)
        self._user = again.entry("user", str(context.get("user") or ""))
        self._program = self._program_of(self._user)
        self._credential = None
        self._read_at = None
        self._is_refused = True

    def doubt(self) -> str | None:
        """See `Login.doubt`."""
        pem = self._credential.certificate.encode() if self._credential is not None else _certificate(self._user)
        ended = None if pem is None else _end_of(pem)
        if ended is None or ended > datetime.now(UTC):
            return None
        return f"the client certificate of {_who(self._kubeconfig)} has expired on {ended:%Y-%m-%d at %H:%M} UTC"

    def close(self) -> None:
        """Nothing is to be ended."""

    def _program_of(self, user: Mapping[str, Any]) -> "LoginProgram | None":
        """As kubectl, none where a token is said, too."""
        if not user.get("exec") or user.get("token") or user.get("tokenFile"):
            return None
        from closeknit.kube.login.login_program import LoginProgram  # noqa: PLC0415 -- where there is none

        return LoginProgram.of(user["exec"], _who(self._kubeconfig), self._cluster)

    async def _credential_of(self, program: "LoginProgram") -> "Credential":
        async with self._asking:  # of many requests the first one has it run
            found = self._credential
            if found is None or found.is_over(datetime.now(UTC)):
                found = await program.credential()
                if found.certificate:
                    _load(self.tls, found.certificate, found.key, _who(self._kubeconfig))
                self._credential = found
            return found

    def _token_now(self) -> str:
        """A token that was read before counts where its file is gone for a moment, until it is refused: as kubectl."""
        now = asyncio.get_running_loop().time()
        if self._read_at is None or now - self._read_at >= TOKEN_S:
            try:
                self._token = _token(self._user)
            except LoginError as error:
                if self._is_refused or not self._token:
                    raise
                _log.warning("%s; the token that it held is used on", error)
            self._read_at, self._is_refused = now, False
        return self._token


def _who(read: Kubeconfig) -> str:
    """The user of the context, by name."""
    return str(read.entry("context", read.context).get("user") or "")


def _token(user: Mapping[str, Any]) -> str:
    """As kubectl, by the file where both are said."""
    file = user.get("tokenFile")
    if not file:
        return str(user.get("token") or "")
    try:
        with Path(str(file)).open("rb") as opened:  # which may be a device that never ends
            read = opened.read(MOST_TOKEN_BYTES + 1)
    except OSError as error:
        raise LoginError(f"the token file {file} cannot be read: {error.strerror}") from error
    token = read.decode(errors="replace").strip()
    if len(read) > MOST_TOKEN_BYTES or not token.isascii() or not token.isprintable() or not token:
        raise LoginError(f"the token file {file} holds no token")
    return token


def _certificate(user: Mapping[str, Any]) -> bytes | None:
    """The user's own, PEM; None without one."""
    try:
        if data := user.get("client-certificate-data"):
            return b64decode(data)
        file = user.get("client-certificate")
        return Path(str(file)).read_bytes() if file else None
    except (OSError, ValueError):
        return None


def _end_of(pem: bytes) -> datetime | None:
    """When the first certificate ends; None where it cannot be told."""
    begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
    text = pem.partition(begin)[2].partition(end)[0]
    try:
        found = _VALIDITY.search(b64decode(text))
        if found is None:
            return None
        short, long = (each.decode() if each else "" for each in found.groups()[2:])
        century = "" if long else "20" if short < "50" else "19"
        return datetime.strptime(f"{century}{short}{long}", "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _load(tls: ssl.SSLContext, certificate: str, key: str, user: str) -> None:
    """Gives new connections this certificate. Raises LoginError."""
    with TemporaryDirectory(prefix="closeknit-login-") as folder:  # OpenSSL reads keys from files alone
        paths = [Path(folder) / name for name in ("certificate", "key")]
        for path, content in zip(paths, (certificate, key), strict=True):
            path.touch(mode=0o600)
            path.write_text(content)
        try:
            tls.load_cert_chain(paths[0], keyfile=paths[1], password=lambda: "")
        except ssl.SSLError as error:
            words = f"the certificate that the login program of user {user} has printed cannot be used: {error}"
            raise LoginError(words) from None


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
        if not file:
            return None
        try:
            Path(str(file)).open("rb").close()
        except OSError as error:  # OpenSSL's own error names no file
            raise LoginError(f"the {name} {file} cannot be read: {error.strerror}") from error
        return Path(str(file))
    path = folder / name
    path.touch(mode=0o600)
    path.write_bytes(b64decode(data, validate=True))
    return path
