"""The first process of a node: a supervisor in namespaces of its own, with which everything of the node ends.

Started as `python inside.py FOLDER SITE`, SITE being the JSON of a `Site`. It has a process, mount, network, host name
and IPC namespace; in its view /var/lib and /var/log are those below FOLDER, and /run is empty. Requests and answers are
those of harness/supervisor.py. Its standard input is a pipe from the owner: however that ends, the process here ends
with it, and as it is the first of its process namespace the kernel then kills every other, the containers' too. What is
left is FOLDER and cgroups, and a process outside removes them.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a file, without an environment

from harness.node import namespaces
from harness.node.site import Site, cgroup_folders
from harness.supervisor import LIBC, PR_SET_PDEATHSIG, Children, remove

IMAGES = Path("/var/lib/containerd")


def main() -> None:
    folder = Path(sys.argv[1])
    site = Site(**json.loads(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    namespaces.unshare(namespaces.NEW_PROCESSES)  # for children
    outside = os.getpid()
    first = os.fork()
    if first == 0:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() not in (0, outside):  # 0: it is in another process namespace
            os._exit(1)
        run_node(folder, site)
        os._exit(0)  # and with it all others
    for descriptor in (0, 1):  # the first process alone holds them: it sees their end, and its end is seen
        os.close(descriptor)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
    os.waitpid(first, 0)
    for cgroup in cgroup_folders(site.cgroup):
        remove_cgroup(cgroup)
    remove(folder)


def run_node(folder: Path, site: Site) -> None:
    own = namespaces.NEW_MOUNTS | namespaces.NEW_NAME | namespaces.NEW_IPC | namespaces.NEW_NETWORK
    namespaces.unshare(own)
    namespaces.mount("none", "/", flags=namespaces.MS_REC | namespaces.MS_PRIVATE)
    connect(site)
    for own_folder in ("/var/lib", "/var/log"):  # kubelet, containerd and CNI keep things there at fixed places
        namespaces.mount(f"{folder}{own_folder}", own_folder, flags=namespaces.MS_BIND)
    # Images and containers are in memory: they are gone at once, and overlayfs works there, whatever the disk is.
    IMAGES.mkdir()
    namespaces.mount("images", str(IMAGES), "tmpfs")
    namespaces.mount("run", "/run", "tmpfs")
    namespaces.mount("proc", "/proc", "proc")
    namespaces.set_host_name(site.name)
    for cgroup in cgroup_folders(site.cgroup):
        cgroup.mkdir(parents=True, exist_ok=True)
    print(json.dumps({"is_up": True}), flush=True)
    Children(folder).serve()


def connect(site: Site) -> None:
    """A cable to the switch, and a way from there to everything else."""
    # The descriptor of the switch's network namespace is a path in the /proc that we still see.
    ip("link", "add", "eth0", "type", "veth", "peer", "name", site.name, "netns", site.switch)
    subprocess.run(
        ["nsenter", f"--net={site.switch}", "ip", "link", "set", site.name, "master", "switch", "up"], check=True
    )
    ip("link", "set", "lo", "up")
    ip("address", "add", f"{site.address}/24", "dev", "eth0")
    ip("link", "set", "eth0", "up")
    ip("route", "add", "default", "via", site.gateway)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def remove_cgroup(folder: Path) -> None:
    """Removes a cgroup and those in it, also while the last of its processes are still ending."""
    for _ in range(100):
        for inner, _, _ in os.walk(folder, topdown=False):
            try:
                Path(inner).rmdir()
            except OSError:  # busy; or gone by now
                continue
        if not folder.exists():
            return
        time.sleep(0.05)


if __name__ == "__main__":
    main()
