"""The condition by which Kubernetes says that a Pod is about to end for another one, as its scheduler writes it."""

from datetime import datetime

from closeknit.cluster.pods.pod import DISRUPTION_TARGET
from closeknit.kube.api import JsonObject
from closeknit.lifecycle.status.conditions import timestamp

REASON = "PreemptionByScheduler"
MESSAGE = "closeknit: its TrainingJob makes room for another one"


def disruption_patch(uid: str, now: datetime) -> list[JsonObject]:
    """The JSON patch of the status of the Pod of this uid. It adds to the conditions that are there: of a Pod that has
    none, no scheduler has spoken, and no container has begun."""
    moment = timestamp(now)
    condition = {"type": DISRUPTION_TARGET, "status": "True", "reason": REASON, "message": MESSAGE}
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": "/status/conditions/-", "value": {**condition, "lastTransitionTime": moment}},
    ]
