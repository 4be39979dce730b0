"""The programs of a node, beside those of the control plane: kubelet, containerd, runc, network plugins, our stand-ins.

`python -m harness.node.projects` brings them, where this machine can run nodes.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness.build import bring
from harness.node.site import CGROUPS, cgroup_folders
from harness.projects import DNS, KUBERNETES, NODE_MODULE, Project, Recipe
from harness.seccomp import NoCompiler
from harness.toolchain import BuildError

OURS = "closeknit.dev/harness/node"  # the module of NODE_MODULE
_CONTAINERD = "github.com/containerd/containerd/v2"
_PLUGINS = "github.com/containernetworking/plugins"
# containerd's tags leave out what a test has no use for: snapshotters of other file systems, and tracing.
_GO = Recipe(NODE_MODULE, ("no_btrfs", "no_devmapper", "no_tracing", "no_zfs"))
_C = Recipe(NODE_MODULE, ("netgo", "osusergo", "seccomp", "static_build"), with_seccomp=True)


def _of(module: str, package: str, stamps: dict[str, str] | None = None) -> Project:
    name = package.rpartition("/")[2]
    return Project(name, module, f"{module}/{package}", (name,), (), stamps or {}, _GO)


KUBELET = Project(
    name="kubelet",
    module="k8s.io/kubernetes",
    package="k8s.io/kubernetes/cmd/kubelet",
    programs=("kubelet",),
    stamps=KUBERNETES.stamps,
    releases=(),
)
RUNC = Project(
    name="runc",
    module="github.com/opencontainers/runc",
    package="github.com/opencontainers/runc",
    programs=("runc",),
    stamps={"main.version": "{version}"},
    releases=(),
    recipe=_C,
)
NETWORK_PLUGINS = tuple(
    _of(_PLUGINS, f"plugins/{package}")
    for package in ("main/bridge", "main/loopback", "ipam/host-local", "meta/bandwidth", "meta/portmap")
)
NODE_PROJECTS = (
    KUBELET,
    RUNC,
    # Programs of their own, and not one by three names: the shim starts itself again by what os.Executable says.
    _of(_CONTAINERD, "cmd/containerd", {f"{_CONTAINERD}/version.Version": "{version}"}),
    _of(_CONTAINERD, "cmd/containerd-shim-runc-v2"),
    _of(_CONTAINERD, "cmd/ctr"),
    *NETWORK_PLUGINS,
    _of(OURS, "gpus"),
    _of(OURS, "inmate"),
    DNS,
)


class NoNodes(Exception):  # noqa: N818 - it says what it is
    """This machine cannot run nodes; the message says why, and what to do."""


def node_programs() -> dict[str, Path]:
    """Where each program of a node is, by its name, brought first where it is missing.

    Raises NoNodes and BuildError.
    """
    if os.geteuid() != 0:
        raise NoNodes("run as root")
    missing = [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]
    if missing:
        raise NoNodes(f"PATH has no {' and no '.join(missing)} (Debian: iproute2, util-linux)")
    if not os.access(CGROUPS, os.W_OK):
        raise NoNodes(f"{CGROUPS} cannot be written")
    _try_out()
    try:
        return bring(NODE_PROJECTS)
    except NoCompiler as error:
        raise NoNodes(str(error)) from error


def _try_out() -> None:
    """A container is often root and yet may not do what a node needs: it is tried. Raises NoNodes."""
    for folder in cgroup_folders(f"closeknit-probe-{os.getpid()}"):
        try:
            folder.mkdir()
            folder.rmdir()
        except OSError as error:
            raise NoNodes(f"no cgroup can be made: {error}") from error
    # With a bridge in a network of its own, and a mount that nobody else sees.
    tried = ["mount -t tmpfs probe /mnt", "ip link add probe type bridge", "ip link add one type veth peer name two"]
    command = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "sh", "-ec", "\n".join(tried)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoNodes(f"no namespaces with mounts, bridges and veth: {done.stderr.strip()[-200:]}")


def main() -> int:
    """Brings what is missing, or says why that is of no use here: the tests are then skipped."""
    try:
        node_programs()
    except NoNodes as error:
        print(f"no real nodes here: {error}", file=sys.stderr)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; what was finished is kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
