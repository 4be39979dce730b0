"""The rules of placement that scenario files show, each once: what `shows` of a file may name."""

from enum import Enum
from typing import NamedTuple


class Rule(NamedTuple):
    """One rule, in a sentence."""

    part: str
    sentence: str


NODE = "In a node"
GANG = "Nodes and GPUs"
FABRIC = "Fabric"
RANKS = "Ranks"


class Rules(Enum):
    """All rules; the name of a member, in small letters and with hyphens, is what files write."""

    FASTEST_FREE_SET = Rule(NODE, "Of the free GPUs the set whose slowest link is fastest, exactly.")
    BROKEN_LINKS = Rule(NODE, "A link that is down joins nothing.")
    MOST_LEFT = Rule(NODE, "Of sets that are as fast, the one that leaves later jobs most.")
    UNHEALTHY_GPUS = Rule(NODE, "Unhealthy GPUs are left out, and counted with their reasons.")
    MIG_SLICES = Rule(NODE, "GPUs that are split by MIG are left out; a job that asks for a slice is given one.")
    SHARING_REPLICAS = Rule(NODE, "GPUs that a device plugin gives to several Pods are left out.")
    NO_FABRIC = Rule(NODE, "A GPU whose NVSwitches are not ready is left out as unhealthy, with that reason.")
    OFFERED_GPUS = Rule(NODE, "GPUs that neither a device plugin nor DRA gives Pods are left out, and that is told.")
    FOREIGN_PODS = Rule(NODE, "GPUs that Pods of others hold are left out, with who holds them.")
    PLUGIN_CHOICE = Rule(NODE, "Where a device plugin chooses, what it may choose is what counts.")
    NODE_WITH_GPUS = Rule(GANG, "Node and GPUs are one choice.")
    EQUAL_SHARES = Rule(GANG, "Equal shares come before unequal ones.")
    UNEQUAL_SHARES = Rule(GANG, "Where no equal shares are, unequal ones are taken.")
    GPUS_PER_NODE = Rule(GANG, "gpusPerNode is kept.")
    TENSOR_GROUPS = Rule(GANG, "Tensor groups lie in one island each, where NVLink is required.")
    CONTEXT_GROUPS = Rule(GANG, "With context parallelism it is tensor x context ranks that do.")
    EXPERT_GROUPS = Rule(GANG, "Expert groups lie on one node, and there in one island, where there is a choice.")
    DOMAIN_GROUPS = Rule(GANG, "Groups may lie over the nodes of one NVLink domain, where Pods have its channels.")
    RAILS = Rule(GANG, "Where rails are joined nowhere, all nodes give the same indexes, but where NVLink joins these.")
    PRODUCTS = Rule(GANG, "Only GPUs of a product and size that the job takes are given to it.")
    KINDS = Rule(GANG, "Machines of several kinds are the last resort, and none where NVLink is required.")
    GENERATIONS = Rule(GANG, "No group lies over several generations of NVLink.")
    NOT_TORN = Rule(GANG, "A job that fits into one machine waits for one for a while.")
    OTHER_NEEDS = Rule(GANG, "Nodes have room for what else Pods need, and GPUs keep their CPUs.")
    SPARE_NODES = Rule(GANG, "Spare nodes of a queue are left out, and counted with their queue.")
    VOLUMES = Rule(GANG, "Nodes are left out on which the job cannot have its volumes.")
    RDMA = Rule(GANG, "RDMA between all nodes comes before sockets.")
    GRACE_NICS = Rule(GANG, "GPUs with NVLink-C2C reach the NICs of their CPU over that, at whatever level these are.")
    ONE_WAY_OF_NICS = Rule(GANG, "All Pods of a gang get their NICs in one way.")
    LEAST_BANDWIDTH = Rule(GANG, "A job that asks for a least bandwidth is given no less.")
    ANY_LEVELS = Rule(FABRIC, "There may be any number of levels.")
    UNEVEN_TREES = Rule(FABRIC, "Branches may differ in depth.")
    MISSING_LEVELS = Rule(FABRIC, "A node without the label of a level is a domain of its own.")
    NVLINK_DOMAINS = Rule(FABRIC, "Multi-node NVLink domains are the innermost level.")
    STRADDLING_DOMAINS = Rule(FABRIC, "Of an NVLink domain that straddles racks, the part in each rack is a domain.")
    REQUIRED_LEVELS = Rule(FABRIC, "A job lies in one domain of the level that it requires, or waits.")
    PREFERRED_LEVELS = Rule(FABRIC, "A job lies in as few domains as can be of the level that it prefers.")
    PATIENCE = Rule(FABRIC, "A job with patience waits for its preferred level, where waiting can help.")
    GIVES_WAY = Rule(FABRIC, "One too large for its preferred level waits, while many jobs do, for the next outwards.")
    FEWEST_DOMAINS = Rule(FABRIC, "Of all spreads the one over the fewest domains, outermost level first.")
    FULLEST_DOMAINS = Rule(FABRIC, "Of domains that serve alike the fullest, so that whole ones are left.")
    CLUSTER_TOPOLOGY = Rule(FABRIC, "ClusterTopology names the levels; each cloud has an example.")
    CLOUD_LABELS = Rule(FABRIC, "Without one, levels are found by the labels of clouds.")
    TOPOGRAPH_LABELS = Rule(FABRIC, "They are found by the labels of topograph, too.")
    LEVEL_BANDWIDTH = Rule(FABRIC, "A gang has no more than a described level that it crosses.")
    HOST_ORDER = Rule(RANKS, "Hosts of one domain have ranks next to each other.")
    PIPELINE_AXIS = Rule(RANKS, "Where stages send most, a row through all stages lies in one domain.")
    DATA_AXIS = Rule(RANKS, "Data parallelism is what remains; where it sends most, its rings lie in one domain.")
    EXPERT_AXIS = Rule(RANKS, "Experts are a second view of context x data, and count with what they send.")
    LOCAL_RANKS = Rule(RANKS, "Local ranks follow the PCI bus.")

    @property
    def word(self) -> str:
        """As files write it."""
        return self.name.lower().replace("_", "-")
