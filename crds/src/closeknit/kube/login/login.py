"""How to reach the cluster, and who asks: by the Pod that this runs in, or by a kubeconfig."""

import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from closeknit.kube.errors import LoginError

_ACTS_AS = ("as", "as-uid", "as-groups", "as-user-extra")


class Login(Protocol):
    """One way to an API server."""

    host: str
    """Its URL, without a slash at the end."""
    tls: ssl.SSLContext
    proxy: str | None
    """The proxy that the login itself asks for."""
    server_name: str | None
    """Whose certificate it shows, where that is not the host's."""
    namespace: str
    """Where kubectl would look when it is told no namespace."""

    async def authorization(self) -> str | None:
        """The header that says who asks; None where a certificate does. Raises LoginError and OSError."""
        ...

    async def renew(self) -> None:
        """Reads it again from its source, since it was refused. Raises LoginError and OSError."""
        ...

    def doubt(self) -> str | None:
        """Why an API server may refuse it, as far as it tells itself: it has expired. None where it is as it should
        be."""
        ...

    def close(self) -> None:
        """Ends what keeps it fresh."""
        ...


async def log_in(kubeconfig: Path | None, context: str | None = None) -> Login:
    """As kubectl: by `kubeconfig`; else by what $KUBECONFIG names, or by ~/.kube/config without that variable; else,
    where none of these is there, by the account of the Pod this runs in. `context` names another than the current one.

    No request is sent, but a login program is run. Raises LoginError and OSError.
    """
    from closeknit.kube.login.pod_login import SERVICE_HOST, PodLogin  # noqa: PLC0415 -- it imports this module

    named = [kubeconfig] if kubeconfig is not None else _named(os.environ)
    files = [file for file in named if file.exists()]
    if not files and kubeconfig is None and context is None and SERVICE_HOST in os.environ:
        return PodLogin(os.environ)
    if not files:
        missing = os.pathsep.join(map(str, named)) or "$KUBECONFIG"
        raise LoginError(f"there is no kubeconfig at {missing}: name one by --kubeconfig or $KUBECONFIG")
    from closeknit.kube.login.kubeconfig_files import Kubeconfig  # noqa: PLC0415 -- a Pod needs none
    from closeknit.kube.login.plain_login import PlainLogin  # noqa: PLC0415
    from closeknit.kube.login.pod_login import namespace_of  # noqa: PLC0415

    read = Kubeconfig.of(files, context)
    if (plain := PlainLogin.of(read, namespace_of(os.environ))) is not None:
        await plain.authorization()  # what cannot log in is told at once, and once
        return plain
    user = str(read.entry("context", read.context).get("user") or "")
    if acts_as := [name for name in _ACTS_AS if read.entry("user", user).get(name)]:
        # The library leaves these out, and asks as the user himself, who may do more.
        words = f"user {user} of the kubeconfig acts as another one ({acts_as[0]}), which closeknit does not do"
        raise LoginError(f"{words}: name a context without it by --context")
    from closeknit.kube.login.kubeconfig import KubeconfigLogin  # noqa: PLC0415 -- its library takes 10 MB, and a second

    return await KubeconfigLogin.of(read)


def _named(environment: Mapping[str, str]) -> Sequence[Path]:
    """Each kubeconfig once, in the order in which they count; that of a user without a home is none."""
    given = environment.get("KUBECONFIG")
    if given:
        return list(dict.fromkeys(Path(each) for each in given.split(os.pathsep) if each))
    try:
        return [Path("~/.kube/config").expanduser()]
    except RuntimeError:
        return []
