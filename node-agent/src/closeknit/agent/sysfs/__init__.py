"""Readings of sysfs, procfs and this process's limits, below any root folder; docs/reference/files.md lists the files.

No file needs root or a capability; what only root may read is an extra. Nothing that a file holds, and no missing,
endless or misplaced one, raises: it costs its own fact, and `errors` of the reading that lacks the fact says why.
"""

from closeknit.agent.sysfs.kernel import kernel
from closeknit.agent.sysfs.pci import pci_devices
from closeknit.agent.sysfs.rdma import rdma_devices
from closeknit.agent.sysfs.traffic import interface_bytes, rdma_bytes

__all__ = ["interface_bytes", "kernel", "pci_devices", "rdma_bytes", "rdma_devices"]
