"""Two NUMA nodes for a kubelet on a machine that has one: the kernel's folder of them, as the kubelet reads it."""

import os
from pathlib import Path

KERNELS = "/sys/devices/system/node"  # a kubelet reads it when it starts
_CPUS = Path("/sys/devices/system/cpu")


def write_numa(folder: Path) -> Path:
    """Such a folder, made in `folder`: the first CPU is on NUMA node 0, all others on 1."""
    made = folder / "numa"
    first, *others = sorted(os.sched_getaffinity(0))
    for number, cpus in enumerate(([first], others)):
        node = made / f"node{number}"
        (node / "hugepages").mkdir(parents=True, exist_ok=True)
        (node / "meminfo").write_text(f"Node {number} MemTotal: {1 << 20} kB\n")
        (node / "distance").write_text("10 20\n" if number == 0 else "20 10\n")
        for cpu in cpus:
            link = node / f"cpu{cpu}"
            if not link.is_symlink():
                link.symlink_to(_CPUS / f"cpu{cpu}")
    return made
