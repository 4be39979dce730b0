"""What of a machine is out of use, by its NodeTopology's status: one rule, for the agent's labels and for the operator.

A device that is Degraded works, only worse, and counts in full; in any other state it does not count at all. An NVLink
has no states: it is up, or among `linksDown`.
"""

from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.api.nodetopology_status import Health, NodeTopologyStatus
from closeknit.machine.graph import Machine, machine


def working_machine(spec: NodeTopologySpec, status: NodeTopologyStatus) -> Machine:
    """The graph of a machine less the links and NICs that are out of use. Raises InvalidTopology.

    A GPU that is out of use keeps its place, so that a position means the same GPU in every table: see unusable_gpus.
    """
    links_down = tuple((down.gpu, down.link) for down in status.links_down)
    nics_down = tuple(nic.name for nic in status.nics if _is_out_of_use(nic.state))
    return machine(spec, links_down, nics_down)


def unusable_gpus(status: NodeTopologyStatus) -> dict[int, list[str]]:
    """The GPUs that are out of use: NVML index, ascending, to the reasons given, if any."""
    gpus = sorted(status.gpus, key=lambda gpu: gpu.index)
    return {gpu.index: gpu.reasons for gpu in gpus if _is_out_of_use(gpu.state)}


def _is_out_of_use(state: Health) -> bool:
    return state is not Health.DEGRADED
