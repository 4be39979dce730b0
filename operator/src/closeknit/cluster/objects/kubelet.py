"""A node's kubelet's guarantees for CPUs and memory, by the policies of its managers."""

from dataclasses import dataclass

from closeknit.api.nodetopology import Capabilities

# Policies as kubelets spell them; of the Topology Manager and of the CPU manager the default.
NONE = "none"
STATIC_CPUS = "static"
STATIC_MEMORY = "Static"


@dataclass(frozen=True, slots=True)
class KubeletPolicies:
    """The policies of one kubelet; each is None if unknown."""

    topology_manager: str | None = None
    cpu_manager: str | None = None
    memory_manager: str | None = None

    @property
    def aligns(self) -> bool:
        """Whether a Guaranteed Pod gets everything from the same NUMA nodes, as far as possible: devices of device
        plugins, and the CPUs and memory of its managers."""
        return self.topology_manager not in {None, NONE}

    @property
    def may_give_cpus(self) -> bool:
        """Whether a Guaranteed Pod with whole CPUs may get them for itself, as far as known."""
        return self.cpu_manager in {None, STATIC_CPUS}

    @property
    def pins_cpus(self) -> bool:
        """Whether that is certain."""
        return self.cpu_manager == STATIC_CPUS

    @property
    def pins_memory(self) -> bool:
        """Whether a Guaranteed Pod's memory is from chosen NUMA nodes."""
        return self.memory_manager == STATIC_MEMORY


UNTOLD = KubeletPolicies()


def kubelet(told: Capabilities) -> KubeletPolicies:
    """The policies in a NodeTopology."""
    return KubeletPolicies(told.topology_manager_policy, told.cpu_manager_policy, told.memory_manager_policy)
