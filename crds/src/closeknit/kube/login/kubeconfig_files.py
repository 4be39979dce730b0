"""What kubeconfigs say, merged as kubectl does it: of the library's own merger the last current-context wins, where
kubectl takes the first, and an empty file ends it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from closeknit.kube.errors import LoginError

# What the library runs into where YAML is something else than a kubeconfig, or a certificate is not base64.
OF_OTHER_SHAPE = (KeyError, TypeError, AttributeError, ValueError)

_LISTS = {"clusters": "cluster", "contexts": "context", "users": "user"}
# What a relative path of is below the folder of its own file; of commands those with a slash, others are in $PATH.
_PATHS = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}

_UNUSABLE = "is no kubeconfig that can be used"


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One or more files as one."""

    files: Sequence[Path]
    merged: dict[str, Any]
    """In the shape of a kubeconfig; paths in it are absolute."""
    context: str
    """Which of its contexts is meant."""

    @classmethod
    def of(cls, files: Sequence[Path], context: str | None) -> "Kubeconfig":
        """Raises LoginError for what is no kubeconfig, and where the context is not there."""
        config = _merged(files)
        name = context or config["current-context"]
        there = [str(each["name"]) for each in config["contexts"]]
        if name not in there:
            wrong = f"has no context {name}" if name else "has no current-context"
            raise LoginError(f"{os.pathsep.join(map(str, files))} {wrong}; {_these(there)}")
        return cls(files, config, name)

    def entry(self, kind: str, name: str) -> dict[str, Any]:
        """What a cluster, context or user of that name says; empty where there is none."""
        found = [each[kind] for each in self.merged[f"{kind}s"] if each["name"] == name]
        return dict(found[0]) if found else {}

    def unusable(self, error: Exception) -> LoginError:
        """What it means that something of it cannot be used."""
        return _unusable(os.pathsep.join(map(str, self.files)), error)


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
        except OF_OTHER_SHAPE as error:
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
    except (yaml.YAMLError, *OF_OTHER_SHAPE) as error:
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
