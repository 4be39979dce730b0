"""Machines that hide which NICs are near to which GPUs: what NCCL then makes of them, and what to do."""

from closeknit.api.names import Role
from closeknit.cluster.booking.booking import names
from closeknit.launch.environment.user_overrides import HarmfulSetting
from closeknit.launch.gang import Gang
from closeknit.launch.network import Net

SETTING = "NCCL_TOPO_FILE"


def hidden(gang: Gang) -> tuple[HarmfulSetting, ...]:
    """One line where ranks talk over NICs of such machines, and the template brings no map of them. EFA's plugin has
    one of its own."""
    found = [worker.node for worker in gang.workers if worker.hides_levels]
    if not found or gang.net is not Net.VERBS or SETTING in gang.users_environment(Role.WORKER):
        return ()
    why = (
        f"on {names(found)} the machine hides which NICs are near to its GPUs, so that NCCL may leave GPUDirect RDMA "
        "aside; set it to your cloud's file of this machine, in your image or on a mount"
    )
    return (HarmfulSetting(SETTING, None, why),)
