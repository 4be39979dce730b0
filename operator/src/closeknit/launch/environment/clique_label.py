"""A label of a node's NVLink domain that NVML contradicts, and what is said of it. Pure.

GPU feature discovery and NVIDIA's DRA driver may both write the label, and one of them may be behind: the first reads
every minute, the second every ten. NCCL and the driver's own IMEX daemons ask NVML, as the agent does.
"""

from closeknit.cluster.booking.booking import names
from closeknit.cluster.network.levels import GPU_CLIQUE_LABEL
from closeknit.launch.environment.user_overrides import HarmfulSetting
from closeknit.launch.gang import Gang


def contradicted(gang: Gang) -> tuple[HarmfulSetting, ...]:
    """One line for each such label on the nodes of a gang over several."""
    found: dict[tuple[str, str], list[str]] = {}
    for worker in gang.workers if gang.is_spread else ():
        if worker.clique_told is not None:
            found.setdefault(worker.clique_told, []).append(worker.node)
    return tuple(
        HarmfulSetting(
            GPU_CLIQUE_LABEL,
            label,
            f"on {names(nodes)} the node agent reads {measured} of NVML, and NCCL goes by that; the gang was placed by "
            "the label. See which of GPU feature discovery and NVIDIA's DRA driver wrote it, and let only one of them",
        )
        for (label, measured), nodes in sorted(found.items())
    )
