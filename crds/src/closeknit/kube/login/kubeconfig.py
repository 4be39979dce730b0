"""The login of one or more kubeconfigs, with all that such a file may say; kubernetes.aio logs in and renews tokens.

The files are merged here, as kubectl does it: of the library's own merger the last current-context wins, where kubectl
takes the first, and an empty file ends it.
"""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, kube_config

from closeknit.kube.errors import LoginError
from closeknit.kube.login.pod_login import namespace_of

# How often the library is asked to renew a token that a kubeconfig's exec plugin or provider issued: its own default.
TOKEN_REFRESH_S = 60

# What the library runs into where YAML is something else than a kubeconfig, or a certificate is not base64.
_OF_OTHER_SHAPE = (KeyError, TypeError, AttributeError, ValueError)

_LISTS = {"clusters": "cluster", "contexts": "context", "users": "user"}
# What a relative path of is below the folder of its own file; of commands those with a slash, others are in $PATH.
_PATHS = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}

_UNUSABLE = "is no kubeconfig that can be used"

_log = logging.getLogger(__name__)


class KubeconfigLogin:
    """One context of kubeconfigs."""

    def __init__(
        self, files: Sequence[Path], context: str | None, configuration: Configuration, namespace: str
    ) -> None:
        self._files = files
        self._context = context
        self._configuration = configuration
        self._refresh: asyncio.Task[None] | None = None
        self.namespace = namespace
        self.host: str = configuration.host
        self.tls = RESTClientObject(configuration).ssl_context
        self.proxy: str | None = configuration.proxy
        self.server_name: str | None = configuration.tls_server_name

    @classmethod
    async def of(cls, files: Sequence[Path], context: str | None) -> Self:
        """See `log_in`."""
        # Calling the class gives a copy of a process-wide default; several Apis in one process need one each.
        configuration: Configuration = type.__call__(Configuration)
        loader = await _load(files, context, configuration)
        current: Mapping[str, Any] = loader.current_context["context"]
        login = cls(files, context, configuration, str(current.get("namespace") or namespace_of(os.environ)))
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
        await _load(self._files, self._context, self._configuration)

    def close(self) -> None:
        """Ends what renews the token."""
        if self._refresh is not None:
            self._refresh.cancel()


async def _load(files: Sequence[Path], context: str | None, configuration: Configuration) -> Any:
    """The library's loader of one context, which has filled in the configuration. Raises LoginError."""
    config = _merged(files)
    where = os.pathsep.join(map(str, files))
    name = context or config["current-context"]
    there = [str(each["name"]) for each in config["contexts"]]
    if name not in there:
        wrong = f"has no context {name}" if name else "has no current-context"
        raise LoginError(f"{where} {wrong}; {_these(there)}")
    try:
        return await kube_config.load_kube_config_from_dict(  # type: ignore[no-untyped-call]
            config, context=name, client_configuration=configuration
        )
    except (ConfigException, *_OF_OTHER_SHAPE) as error:
        raise _unusable(where, error) from error


def _these(contexts: Sequence[str], most: int = 10) -> str:
    if not contexts:
        return "it describes none"
    more = f" and {len(contexts) - most} more" if len(contexts) > most else ""
    return f"it has {', '.join(contexts[:most])}{more}, one of which --context can name"


def _merged(files: Sequence[Path]) -> dict[str, Any]:
    """One kubeconfig of several: of a cluster, context or user that two of them describe the first word counts, whole.
    Paths in it are absolute. Raises LoginError."""
    merged: dict[str, Any] = {"current-context": "", **{name: {} for name in _LISTS}}
    for file in files:
        config = _read(file)
        try:
            merged["current-context"] = merged["current-context"] or config.get("current-context") or ""
            for name, inner in _LISTS.items():
                for entry in config.get(name) or []:
                    found = _absolute(inner, entry.get(inner) or {}, file.absolute().parent)
                    merged[name].setdefault(entry["name"], {"name": entry["name"], inner: found})
        except _OF_OTHER_SHAPE as error:
            raise _unusable(str(file), error) from error
    return {name: list(found.values()) if name in _LISTS else found for name, found in merged.items()}


def _read(file: Path) -> dict[str, Any]:
    """What one file says, in the shape of a kubeconfig as far as it is merged here. Raises LoginError."""
    try:
        config = yaml.safe_load(file.read_bytes()) or {}
    except OSError as error:
        raise LoginError(f"kubeconfig {file} cannot be read: {error.strerror}; name a file by --kubeconfig") from error
    except RecursionError:
        raise LoginError(f"{file} {_UNUSABLE}: it is nested too deep") from None
    except (yaml.YAMLError, *_OF_OTHER_SHAPE) as error:
        raise _unusable(str(file), error) from error
    if not isinstance(config, dict):
        raise LoginError(f"{file} {_UNUSABLE}: it is not a mapping with clusters, contexts and users")
    for name, inner in _LISTS.items():
        entries = config.get(name) or []
        if not isinstance(entries, list) or not all(_is_entry(each, inner) for each in entries):
            raise LoginError(f"{file} {_UNUSABLE}: {name} is not a list of entries, each with a name and a {inner}")
    return config


def _is_entry(entry: object, inner: str) -> bool:
    return isinstance(entry, dict) and "name" in entry and isinstance(entry.get(inner) or {}, dict)


def _absolute(kind: str, entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    found = dict(entry)
    for name in _PATHS.get(kind, ()):
        if found.get(name):
            found[name] = str(folder / found[name])
    command = (found.get("exec") or {}).get("command") or ""
    if os.sep in command:
        found["exec"] = {**found["exec"], "command": str(folder / command)}
    return found


def _unusable(where: str, error: Exception) -> LoginError:
    words = " ".join(str(error).split()) or type(error).__name__
    return LoginError(f"{where} {_UNUSABLE}: {words}")


def _report_end_of_refresh(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("the kubeconfig's login is no longer renewed: %s", error)
