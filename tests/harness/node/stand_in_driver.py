"""NVIDIA's driver as its runtime puts it into a Pod, for images that have a Python of their own.

A node whose host_folders are `driver_folders(...)` mounts this very file as the module `sitecustomize` into each
container of the RuntimeClass `nvidia`, as NVIDIA's runtime mounts libnvidia-ml.so.1. The agent's own binding then calls
the stand-in for that library (harness.nvml_library), which knows the node's GPUs. Chart, image and arguments are real.
"""

import sys
from pathlib import Path

_READINGS = Path("/run/nvidia/readings.json")
_HARNESS = "/run/nvidia/harness"  # as a package's folder: its parent is where it is imported from
_ASKS_NVML = "closeknit.agent.nvml.nvml_worker"


def driver_folders(folder: Path, node: str, profile: str) -> dict[str, Path]:
    """What containers of this node see of the driver, and where; writes the node's GPUs into the folder."""
    from closeknit.agent.discovery.readings import dump  # noqa: PLC0415 - not in the container
    from harness.machines import readings  # noqa: PLC0415
    from harness.python_base import VERSION  # noqa: PLC0415

    file = folder / f"{node}.readings.json"
    file.write_bytes(dump.encode(readings(node, profile)))
    # The folder of the library is searched by every Python, also by one of a virtual environment.
    return {
        f"/usr/local/lib/python{VERSION}/sitecustomize.py": Path(__file__),
        _HARNESS: Path(__file__).parents[1],
        str(_READINGS): file,
    }


def _load() -> None:
    """Has this process find the driver; of the agent's two it is the one that looks for it."""
    sys.path.append(str(Path(_HARNESS).parent))
    import pynvml  # noqa: PLC0415

    from closeknit.agent.discovery.readings import dump  # noqa: PLC0415
    from harness.nvml_library import NvmlLibrary  # noqa: PLC0415

    pynvml.nvmlLib = NvmlLibrary(dump.decode(_READINGS.read_bytes()))


if __name__ == "sitecustomize" and _ASKS_NVML in sys.orig_argv:
    _load()
