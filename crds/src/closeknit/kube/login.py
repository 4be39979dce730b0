"""How to reach the cluster, and who asks: by the Pod that this runs in, or by a kubeconfig."""

import os
import ssl
from pathlib import Path
from typing import Protocol


class LoginError(Exception):
    """There is no way to the cluster; the message is one line for a person."""


class Login(Protocol):
    """One way to an API server."""

    host: str
    """Its URL, without a slash at the end."""
    tls: ssl.SSLContext
    proxy: str | None
    """The proxy that the login itself asks for."""
    server_name: str | None
    """Whose certificate it shows, where that is not the host's."""

    async def authorization(self) -> str | None:
        """The header that says who asks; None where a certificate does. Raises LoginError and OSError."""
        ...

    async def renew(self) -> None:
        """Reads it anew from where it came, since it was refused. Raises LoginError and OSError."""
        ...

    def close(self) -> None:
        """Ends what keeps it fresh."""
        ...


async def log_in(kubeconfig: Path | None) -> Login:
    """That of `kubeconfig`, else of $KUBECONFIG, else of the Pod this runs in, else of ~/.kube/config.

    No request is sent. Raises LoginError and OSError.
    """
    from closeknit.kube.pod_login import SERVICE_HOST, PodLogin  # noqa: PLC0415 -- one of the two is enough

    path = str(kubeconfig or os.environ.get("KUBECONFIG") or "")
    if not path and SERVICE_HOST in os.environ:
        return PodLogin(os.environ)
    from closeknit.kube.kubeconfig import KubeconfigLogin  # noqa: PLC0415 -- its library takes 10 MB, and a Pod needs none

    return await KubeconfigLogin.of(path or "~/.kube/config")
