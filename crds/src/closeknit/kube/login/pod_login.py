"""The login of a Pod: the files that the kubelet mounts. Read here, since the library for it takes 10 MB of memory."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path

from closeknit.api.names import DEFAULT_NAMESPACE
from closeknit.kube.errors import LoginError

SERVICE_HOST, SERVICE_PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_S = 60.0  # a token is exchanged in its file long before it ends, and lasts ten minutes at least


class PodLogin:
    """Host and port of the environment, token and certificate of files."""

    proxy: str | None = None
    server_name: str | None = None

    def __init__(self, environment: Mapping[str, str], mount: Path = MOUNT) -> None:
        """Raises LoginError and OSError."""
        host, port = environment.get(SERVICE_HOST, ""), environment.get(SERVICE_PORT, "")
        if not host or not port:
            raise LoginError(f"{SERVICE_HOST} and {SERVICE_PORT} do not name an API server")
        self.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self.namespace = namespace_of(environment, mount)
        self._token_file = mount / "token"
        self._token = self._read()
        self._read_at: float | None = None
        try:
            self.tls = ssl.create_default_context(cafile=str(mount / "ca.crt"))
        except ssl.SSLError as error:
            raise LoginError(f"{mount / 'ca.crt'} is no certificate: {error}") from error

    async def authorization(self) -> str | None:
        """The token, read again once a minute."""
        now = asyncio.get_running_loop().time()
        if self._read_at is None or now - self._read_at >= TOKEN_S:
            self._token, self._read_at = self._read(), now
        return f"Bearer {self._token}"

    async def renew(self) -> None:
        """Reads the token at the next request."""
        self._read_at = None

    def doubt(self) -> str | None:
        """Nothing is known of it."""
        return None

    def close(self) -> None:
        """Nothing is to be ended."""

    def _read(self) -> str:
        token = self._token_file.read_text().strip()
        if not token or not token.isascii() or not token.isprintable():
            raise LoginError(f"{self._token_file} holds no token")
        return token


def namespace_of(environment: Mapping[str, str], mount: Path = MOUNT) -> str:
    """Where kubectl looks that is told no namespace: in a Pod its own, else `default`."""
    if SERVICE_HOST not in environment:
        return DEFAULT_NAMESPACE
    try:
        mounted = (mount / "namespace").read_text().strip()
    except (OSError, UnicodeDecodeError):
        mounted = ""
    return environment.get("POD_NAMESPACE") or mounted or DEFAULT_NAMESPACE
