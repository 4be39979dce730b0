"""NetworkPolicies that are enforced: kube-router's controller of them on a node, by Debian's iptables and ipset.

The rules that it makes are in the node's own network, and gone with it. It judges what a node's Pods are sent by Pods
of other nodes and of the same one, as the kernel passes both through iptables (br_netfilter).
"""

import os
import shutil
from pathlib import Path

from harness.build import bring
from harness.debian import NoPackages, unpacked
from harness.kubectl import kubeconfig_text, write_private
from harness.local_cluster import LocalCluster
from harness.node.local_node import LocalNode
from harness.node.projects import NoNodes
from harness.node.site import API_ADDRESS
from harness.projects import POLICIES

_PACKAGES = (
    *("iptables", "libip4tc2", "libip6tc2", "libxtables12", "libmnl0"),
    *("libnetfilter-conntrack3", "libnfnetlink0", "libnftnl11"),
    *("ipset", "libipset13"),
)
_NAMES = ("iptables", "iptables-save", "iptables-restore")
BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


def enforce_policies(cluster: LocalCluster, node: LocalNode) -> None:
    """From now on, until the node ends. Raises NoNodes and BuildError."""
    if not BRIDGED.exists():
        raise NoNodes("this kernel has no br_netfilter: what a Pod sends another of its node is seen by nobody")
    program = bring((POLICIES,))["policies"]
    folder = node.folder / "policies"
    folder.mkdir()
    login = cluster.authority.client("policies", ["system:masters"])
    kubeconfig = folder / "kubeconfig"
    write_private(kubeconfig, kubeconfig_text(f"https://{API_ADDRESS}", cluster.authority.certificate, login))
    what = [str(program), f"--kubeconfig={kubeconfig}", f"--node={node.site.name}"]
    node.start_program("policies", "env", *_environment(folder), *what)


def _environment(folder: Path) -> list[str]:
    """The variables by which iptables and ipset are found: the machine's own, else Debian's, linked in `folder`."""
    path = os.environ.get("PATH", "")
    if all(shutil.which(each) for each in (*_NAMES, "ipset")):
        return [f"PATH={path}"]
    try:
        files = unpacked("iptables-debian", _PACKAGES)
    except NoPackages as error:
        raise NoNodes(str(error)) from error
    for name in _NAMES:  # an installation of the package links them
        (folder / name).symlink_to(files / "usr" / "sbin" / "xtables-nft-multi")
    extensions = next(files.glob("usr/lib/*/xtables"))
    return [
        f"PATH={folder}:{files / 'usr' / 'sbin'}:{files / 'sbin'}:{path}",
        f"LD_LIBRARY_PATH={extensions.parent}",
        f"XTABLES_LIBDIR={extensions}",
    ]
