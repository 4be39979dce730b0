"""What a job that waits tells of the nodes that are asked for."""

from datetime import timedelta

from closeknit.cluster.capacity.provisioning import ProvisioningRequest
from closeknit.lifecycle.status.conditions import moment, timestamp

# An autoscaler that has given up is asked again: quotas of clouds and stocks of GPUs change at that pace.
ASKED_AGAIN = timedelta(minutes=10)
_ANSWERS = {
    "": "its autoscaler has not answered yet",
    "Accepted": "its autoscaler is at it",
    "Provisioned": "the nodes are there, or on their way, and each counts once its agent has measured it",
    "Failed": "its autoscaler cannot have them",
    "CapacityRevoked": "its autoscaler has taken them away again",
    "BookingExpired": "they were kept for the job long enough",
}


def capacity_words(asked: ProvisioningRequest | None) -> str:
    """The clause about it; empty where nothing is asked for."""
    if asked is None:
        return ""
    since = f" at {asked.created}" if asked.created else ""
    said = f" ({asked.message})" if asked.message else ""
    again = ""
    if asked.is_over and asked.answered:
        again = f"; it asks again at {timestamp(moment(asked.answered) + ASKED_AGAIN)}"
    return (
        f"it asked for nodes{since}, by ProvisioningRequest {asked.name} of class {asked.class_name}: "
        f"{_ANSWERS[asked.answer]}{said}{again}"
    )
