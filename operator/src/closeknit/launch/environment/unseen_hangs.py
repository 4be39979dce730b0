"""A version of NCCL with which no hang can be seen, and what is said of it. Pure."""

from closeknit.api.text.nccl_version import since
from closeknit.launch.environment.user_overrides import HarmfulSetting
from closeknit.launch.gang import Gang

COUNTS_TOLD_BY = since(28, 7)  # RAS answers in JSON, with the collectives that each rank has called
SETTING = "restart.onHang"


def unseen(gang: Gang) -> tuple[HarmfulSetting, ...]:
    """One line for a gang whose sidecar listens to RAS, and whose NCCL tells no counts."""
    version, restart = gang.nccl_version, gang.job.spec.restart
    if version is None or restart is None or not gang.sidecar_image or gang.on_host_network:
        return ()
    if COUNTS_TOLD_BY.has(version):
        return ()
    instead = (
        "only the file of restart.stallDeadline tells of a hang"
        if restart.stall_deadline is not None
        else "no hang is seen; set restart.stallDeadline, and have the trainer touch its file"
    )
    why = (
        f"its Pods have NCCL {version}, and {COUNTS_TOLD_BY} tell what ranks wait for: {instead}, or take such an NCCL"
    )
    return (HarmfulSetting(SETTING, restart.on_hang.value, why),)
