"""Our own programs in a Pod, without an image of Python: the machine's Python and the sources are mounted read-only.

The image holds a small script for each program and nothing else; what it runs comes by the runtime class `nvidia`, as
NVIDIA's driver comes into a container. So the Pod has no hostPath, and PodSecurity judges it as it judges the real one.
"""

import sys
import sysconfig
from pathlib import Path

from harness.node.image import Layer, write_image

ROOT = Path(__file__).parents[3]
SOURCES = ("crds/src", "operator/src", "node-agent/src")
_HOST = "/host"  # where everything is in a container
AGENT_IMAGE = "closeknit.dev/agent:test"

HOST_FOLDERS = {
    "/usr": Path("/usr"),
    "/etc/alternatives": Path("/etc/alternatives"),  # where Debian's libraries of linear algebra are found
    f"{_HOST}/python": Path(sys.base_prefix),
    f"{_HOST}/packages": Path(sysconfig.get_path("platlib")),
    **{f"{_HOST}/{source}": ROOT / source for source in SOURCES},
}

RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}


def write_agent_image(archive: Path) -> None:
    """An image with the program closeknit-agent; for nodes with HOST_FOLDERS."""
    layer = system()
    path = ":".join([f"{_HOST}/packages", *(f"{_HOST}/{source}" for source in SOURCES)])
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    program = f"exec {_HOST}/python/bin/python{version} -B -m closeknit.agent.main"
    libraries = f"{_HOST}/python/lib"  # where a Python that is not the system's has its libpython
    script = f'#!/bin/sh\nPYTHONPATH={path} LD_LIBRARY_PATH={libraries} {program} "$@"\n'
    layer.add_file("programs/closeknit-agent", script.encode(), mode=0o755)
    sidecar = script.replace("-m closeknit.agent.main", "-S -m closeknit.sidecar.main")
    layer.add_file("programs/closeknit-sidecar", sidecar.encode(), mode=0o755)
    write_image(archive, AGENT_IMAGE, layer, ["/programs/closeknit-agent"], environment=["PATH=/programs:/usr/bin"])


def system() -> Layer:
    """The beginning of an image that runs the machine's own programs; for nodes with HOST_FOLDERS."""
    layer = Layer()
    layer.add_etc()
    for name in ("bin", "sbin", "lib", "lib64"):
        layer.add_link(name, f"usr/{name}")
    return layer
