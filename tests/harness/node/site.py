"""Where a node stands: its name, addresses, cgroup and the switch that it hangs on."""

from dataclasses import dataclass
from pathlib import Path

GATEWAY = "172.31.255.1"  # the switch's own address, on the network of the nodes
API_ADDRESS = "10.96.0.1"  # the first of the Services' addresses: that of the Service `kubernetes`
DNS_ADDRESS = "10.96.0.10"  # that of the cluster's DNS, as kubeadm has it
CLUSTER_DOMAIN = "cluster.local"
NODES_AT_MOST = 200
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Site:
    """One node's place. Its addresses exist behind one switch alone, so that every cluster has the same."""

    name: str
    number: int
    """From 1 to NODES_AT_MOST."""
    switch: str
    """Path of the switch's network namespace."""
    cgroup: str
    """Its name below every cgroup hierarchy."""

    @property
    def gateway(self) -> str:
        """Where everything goes that is not on the node."""
        return GATEWAY

    @property
    def address(self) -> str:
        """The node's own address."""
        return node_address(self.number)

    @property
    def pods(self) -> str:
        """The network of its Pods."""
        return pod_network(self.number)


def node_address(number: int) -> str:
    """The address of the node of this number."""
    return f"172.31.255.{number + 10}"


def pod_network(number: int) -> str:
    """The network of the Pods of the node of this number."""
    return f"10.244.{number}.0/24"


def cgroup_folders(name: str) -> list[Path]:
    """The folder of this cgroup in every hierarchy of the machine: one of version 2, or several of version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS / name]
    return [hierarchy / name for hierarchy in CGROUPS.iterdir() if hierarchy.is_dir() and not hierarchy.is_symlink()]
