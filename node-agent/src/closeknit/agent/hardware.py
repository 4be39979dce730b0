"""The machine that this process runs on."""

from pathlib import Path

from closeknit.agent import sysfs
from closeknit.agent.discovery.readings import Readings
from closeknit.agent.nvml import Nvml
from closeknit.agent.source import SourceError
from closeknit.api.nodetopology import Method


class HardwareSource:
    """NVML for the GPUs, sysfs and procfs below `root` for what is around them."""

    method = Method.NVML

    def __init__(self, root: Path) -> None:
        """Raises SourceError without a driver."""
        self._root = root
        self._nvml: Nvml | None = Nvml()

    def read(self) -> Readings:
        """The machine as it is now. Raises SourceError; the next call then opens the driver anew."""
        errors: dict[str, str] = {}
        nvml = self._nvml = self._nvml or Nvml()
        try:
            gpus, pairs = nvml.gpus()
        except SourceError:
            nvml.close()
            self._nvml = None
            raise
        return Readings(
            driver_version=nvml.driver_version(errors),
            cuda_version=nvml.cuda_version(errors),
            gpus=tuple(gpus),
            pairs=tuple(pairs),
            pci=sysfs.pci_devices(self._root, errors),
            lists_capture_cards="pci" not in errors,
            rdma=sysfs.rdma_devices(self._root, errors),
            kernel=sysfs.kernel(self._root),
            errors=errors,
        )
