"""Readings of sysfs, procfs and this process's limits, below any root folder; docs/reference/files.md lists the files.

Invariant: each read is bounded in size and time.
"""

from closeknit.agent.sysfs.counter_files import interface_bytes, rdma_bytes
from closeknit.agent.sysfs.kernel import kernel
from closeknit.agent.sysfs.pci_files import pci_devices
from closeknit.agent.sysfs.rdma import rdma_devices

__all__ = ["interface_bytes", "kernel", "pci_devices", "rdma_bytes", "rdma_devices"]
