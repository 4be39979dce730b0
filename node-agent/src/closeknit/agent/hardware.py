"""The machine that this process runs on."""

from pathlib import Path

from closeknit.agent import sysfs
from closeknit.agent.discovery.readings import Readings
from closeknit.agent.nvml.session import Session
from closeknit.api.nodetopology import Method


class HardwareSource:
    """NVML for the GPUs, sysfs and procfs below `root` for what is around them."""

    method = Method.NVML

    def __init__(self, root: Path) -> None:
        self._root = root
        self._session = Session()

    def read(self) -> Readings:
        """The machine as it is now; what cannot be read is part of it. A driver that failed is opened anew."""
        survey = self._session.survey()
        indexes = range(len(survey.uuids))
        return Readings(
            driver_version=survey.driver_version,
            cuda_version=survey.cuda_version,
            gpus=tuple(self._session.gpu(index) for index in indexes),
            pairs=tuple(pair for index in indexes for pair in self._session.pairs(index)),
            pci=sysfs.pci_devices(self._root),
            rdma=sysfs.rdma_devices(self._root),
            kernel=sysfs.kernel(self._root),
            errors=survey.errors,
        )
