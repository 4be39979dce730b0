"""The stock kubectl as a function, and the kubeconfig files that it and every other client read."""

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.certificates import KeyPair


class KubectlError(Exception):
    """kubectl refused; the message holds the command and its words, `stderr` the words alone."""

    def __init__(self, arguments: tuple[str, ...], returncode: int, stderr: str) -> None:
        super().__init__(f"kubectl {' '.join(arguments)}: exit {returncode}\n{stderr.strip()}")
        self.returncode = returncode
        self.stderr = stderr


def run_kubectl(
    program: Path, arguments: tuple[str, ...], *, kubeconfig: Path, cache: Path, stdin: str | None, check: bool
) -> str:
    """What kubectl printed on standard output; KubectlError where it failed and `check` is set."""
    done = subprocess.run(
        [program, "--kubeconfig", kubeconfig, "--cache-dir", cache, *arguments],
        input=stdin if stdin is not None else "",
        # Too short a life to collect garbage in: that is a third of its CPU time.
        env={"PATH": os.environ.get("PATH", ""), "HOME": str(cache), "KUBECTL_KUBERC": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode != 0:
        raise KubectlError(arguments, done.returncode, done.stderr)
    return done.stdout


def kubeconfig_text(server: str, authority: bytes, login: KeyPair | str) -> str:
    """A kubeconfig (JSON is YAML) that trusts this authority alone and logs in by certificate or bearer token."""
    user: Mapping[str, Any]
    if isinstance(login, str):
        user = {"token": login}
    else:
        user = {"client-certificate-data": _base64(login.public), "client-key-data": _base64(login.private)}
    name = "closeknit-test"
    cluster = {"server": server, "certificate-authority-data": _base64(authority)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
            "current-context": name,
        },
        indent=2,
    )


def token_of(kubeconfig: Path) -> str:
    """The bearer token that a file of `kubeconfig_text` logs in with."""
    return str(json.loads(kubeconfig.read_text())["users"][0]["user"]["token"])


def write_private(path: Path, content: bytes | str) -> Path:
    """The path, after writing what only its owner may read."""
    raw = content.encode() if isinstance(content, str) else content
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(raw)
    return path


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
