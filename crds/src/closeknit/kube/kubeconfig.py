"""The login of a kubeconfig, with all that such a file may say; kubernetes.aio reads it and renews its tokens."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any, Self

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, kube_config
from yaml import YAMLError

from closeknit.kube.login import LoginError

# How often the library is asked to renew a token that a kubeconfig's exec plugin or provider issued: its own default.
TOKEN_REFRESH_S = 60

# What the library runs into where YAML is something else than a kubeconfig, or a certificate is not base64.
_OF_OTHER_SHAPE = (KeyError, TypeError, AttributeError, ValueError)

_log = logging.getLogger(__name__)


class KubeconfigLogin:
    """The current context of a kubeconfig."""

    def __init__(self, path: str, configuration: Configuration) -> None:
        self._path = path
        self._configuration = configuration
        self._refresh: asyncio.Task[None] | None = None
        self.host: str = configuration.host
        self.tls = RESTClientObject(configuration).ssl_context
        self.proxy: str | None = configuration.proxy
        self.server_name: str | None = configuration.tls_server_name

    @classmethod
    async def of(cls, path: str) -> Self:
        """See `log_in`."""
        # Calling the class gives a copy of a process-wide default; several Apis in one process need one each.
        configuration: Configuration = type.__call__(Configuration)
        loader = await _load(path, configuration)
        login = cls(path, configuration)
        if loader.current_context["context"].get("user"):
            refresh = kube_config.refresh_token(  # type: ignore[no-untyped-call]
                loader, configuration, interval=TOKEN_REFRESH_S
            )
            login._refresh = asyncio.create_task(refresh)  # ends at once where there is nothing to renew
            login._refresh.add_done_callback(_report_end_of_refresh)
        return login

    async def authorization(self) -> str | None:
        """See `Login.authorization`."""
        try:
            found: str | None = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except ConfigException as error:
            raise LoginError(str(error)) from error
        return found

    async def renew(self) -> None:
        """Reads the file again, which the library never does."""
        await _load(self._path, self._configuration)

    def close(self) -> None:
        """Ends what renews the token."""
        if self._refresh is not None:
            self._refresh.cancel()


async def _load(path: str, configuration: Configuration) -> Any:
    if not _is_there(path):
        raise LoginError(f"there is no kubeconfig at {path}: name one by $KUBECONFIG")
    try:
        return await kube_config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=path, client_configuration=configuration, persist_config=False
        )
    except (ConfigException, YAMLError, *_OF_OTHER_SHAPE) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise LoginError(f"{path} is no kubeconfig that can be used: {words}") from error


def _is_there(path: str) -> bool:
    """Whether there is one at all; of several, some may be missing."""
    return any(Path(each).expanduser().exists() for each in path.split(os.pathsep))


def _report_end_of_refresh(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("the kubeconfig's login is no longer renewed: %s", error)
