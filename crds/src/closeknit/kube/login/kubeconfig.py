"""The login of a context of kubeconfigs, with all that such a file may say; kubernetes.aio logs in and renews tokens.
A context that needs none of that is read by plain_login.py: the library takes more than a second to import.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any, Self

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, kube_config

from closeknit.kube.errors import LoginError
from closeknit.kube.login.kubeconfig_files import OF_OTHER_SHAPE, Kubeconfig
from closeknit.kube.login.pod_login import namespace_of

# How often the library is asked to renew a token that a kubeconfig's exec plugin or provider issued: its own default.
TOKEN_REFRESH_S = 60

_log = logging.getLogger(__name__)


class KubeconfigLogin:
    """One context of kubeconfigs."""

    def __init__(self, read: Kubeconfig, configuration: Configuration, namespace: str) -> None:
        self._kubeconfig = read
        self._configuration = configuration
        self._refresh: asyncio.Task[None] | None = None
        self.namespace = namespace
        self.host: str = configuration.host
        self.tls = RESTClientObject(configuration).ssl_context
        self.proxy: str | None = configuration.proxy
        self.server_name: str | None = configuration.tls_server_name

    @classmethod
    async def of(cls, read: Kubeconfig) -> Self:
        """Raises LoginError and OSError."""
        # Calling the class gives a copy of a process-wide default; several Apis in one process need one each.
        configuration: Configuration = type.__call__(Configuration)
        loader = await _load(read, configuration)
        current: Mapping[str, Any] = loader.current_context["context"]
        login = cls(read, configuration, str(current.get("namespace") or namespace_of(os.environ)))
        if current.get("user"):
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
        """Reads the files again, which the library never does."""
        again = Kubeconfig.of(self._kubeconfig.files, self._kubeconfig.context)
        await _load(again, self._configuration)

    def doubt(self) -> str | None:
        """Nothing is known of it."""
        return None

    def close(self) -> None:
        """Ends what renews the token."""
        if self._refresh is not None:
            self._refresh.cancel()


async def _load(read: Kubeconfig, configuration: Configuration) -> Any:
    """The library's loader of one context, which has filled in the configuration. Raises LoginError."""
    try:
        return await kube_config.load_kube_config_from_dict(  # type: ignore[no-untyped-call]
            read.merged, context=read.context, client_configuration=configuration
        )
    except (ConfigException, *OF_OTHER_SHAPE) as error:
        raise read.unusable(error) from error


def _report_end_of_refresh(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("the kubeconfig's login is no longer renewed: %s", error)
