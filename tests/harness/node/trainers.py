"""Images that train: the machine's own programs with one framework's environment first in PATH, as in the frameworks'
own images. They are empty but for a few links; what they run is mounted, and every node has to have TRAINER_FOLDERS."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import frameworks
from harness.frameworks import Environment, NoFrameworks
from harness.node.host_python import HOST_FOLDERS, system
from harness.node.image import write_image

# Debian's torchrun 1.13 does not start a process where these have their default, for Python 3.11 no longer counts 0
# among the values of a flag: so something is said of a local rank that nobody has.
_TORCHRUN = ("PET_REDIRECTS=9:1", "PET_TEE=9:1")
_OPENMPI = Path("/etc/openmpi")  # the settings of Debian's


@dataclass(frozen=True, slots=True)
class Trainer:
    """One image."""

    name: str
    framework: Environment | None = None
    """None: what Debian's packages have."""
    settings: Sequence[str] = ()
    """Variables of the image, as NAME=value."""

    @property
    def image(self) -> str:
        """Its full name."""
        return f"closeknit.dev/{self.name}:1"

    @property
    def lacks(self) -> str:
        """Why it cannot be had here; empty where it can."""
        try:
            if self.framework is not None:
                frameworks.bring(self.framework)
        except NoFrameworks as reason:
            return str(reason)
        return ""

    def write(self, archive: Path) -> None:
        """Writes the image."""
        layer = system()
        layer.add_link("programs/python", "/usr/bin/python3")
        own = "" if self.framework is None else f"{self.framework.folder}/bin:"
        settings = (f"PATH={own}/programs:/usr/bin:/usr/sbin", "HOME=/tmp", *self.settings)
        write_image(archive, self.image, layer, ["/bin/sh"], environment=settings)


DEBIAN = Trainer("trainer", None, _TORCHRUN)
DEEPSPEED = Trainer("deepspeed", frameworks.DEEPSPEED, _TORCHRUN)
HOROVOD = Trainer("horovod", frameworks.HOROVOD)
# Four devices for each process, as many as GPUs in the examples.
JAX = Trainer("jax", frameworks.JAX, ("JAX_PLATFORMS=cpu", "XLA_FLAGS=--xla_force_host_platform_device_count=4"))
TENSORFLOW = Trainer("tensorflow", frameworks.TENSORFLOW, ("TF_CPP_MIN_LOG_LEVEL=2",))
TRAINERS = (DEBIAN, DEEPSPEED, HOROVOD, JAX, TENSORFLOW)


def trainer_folders() -> dict[str, Path]:
    """What a node mounts for all images that can be had, and where."""
    found = [trainer.framework.folder for trainer in TRAINERS if trainer.framework is not None and not trainer.lacks]
    settings = [_OPENMPI] if _OPENMPI.is_dir() else []
    return {**HOST_FOLDERS, **{str(folder): folder for folder in (*found, *settings)}}
