"""What a job that waits tells of the nodes that are asked for."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from closeknit.api.objects import TrainingJob
from closeknit.cluster.capacity.placeholder import CapacityRefusal, Placeholder
from closeknit.cluster.capacity.provisioning import ProvisioningRequest
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.status.conditions import moment, timestamp
from closeknit.lifecycle.status.pauses import over_at
from closeknit.placement.values.sentences import count

# An autoscaler that has given up is asked again: quotas of clouds and stocks of GPUs change at that pace.
ASKED_AGAIN = timedelta(minutes=10)
# cluster-autoscaler gives a node 15 min to come (--max-node-provision-time), and a GPU's driver takes some more.
PLACEHOLDERS_STAY = timedelta(minutes=30)
_ANSWERS = {
    "": "its autoscaler has not answered yet",
    "Accepted": "its autoscaler is at it",
    "Provisioned": "the nodes are there, or on their way, and each counts once its agent has measured it",
    "Failed": "its autoscaler cannot have them",
    "CapacityRevoked": "its autoscaler has taken them away again",
    "BookingExpired": "they were kept for the job long enough",
}


def capacity_words(job: TrainingJob, cluster: Cluster, now: datetime) -> str:
    """The clause about it; empty where nothing is asked for."""
    match cluster.capacity.of(job):
        case None:
            return ""
        case CapacityRefusal() as refusal:
            return f"no nodes are asked for: {refusal.words}; it asks again at {refusal.until}"
        case ProvisioningRequest() as asked:
            return _of_request(asked)
        case there:
            own = [each for each in there if each.job_uid == job.metadata.uid and not each.is_going]
            return _of_placeholders(job, own, cluster, now) if own else ""


def _of_placeholders(job: TrainingJob, there: Sequence[Placeholder], cluster: Cluster, now: datetime) -> str:
    first = cluster.capacity.first_ask_of(job)
    since = min(each.created for each in there) if first is None else first.since
    until = timestamp(over_at(since, PLACEHOLDERS_STAY, now))
    bound = sum(bool(each.node) for each in there)
    gpus = f"of {count(there[0].gpus, 'GPU')}" + (" each" if len(there) > 1 else "")
    more = len(there) - there[0].parts.of
    instead = f", {more} of them in place of others on nodes that are held without Pods" if more > 0 else ""
    return (
        f"it asked for nodes at {since}, by {count(len(there), 'placeholder Pod')} {gpus} until {until}{instead}: "
        f"{bound} of them {'is' if bound == 1 else 'are'} on a node, and each node counts once its agent has measured "
        "it"
    )


def _of_request(asked: ProvisioningRequest) -> str:
    since = f" at {asked.created}" if asked.created else ""
    said = f" ({asked.message})" if asked.message else ""
    again = ""
    if asked.is_over and asked.answered:
        again = f"; it asks again at {timestamp(moment(asked.answered) + ASKED_AGAIN)}"
    return (
        f"it asked for nodes{since}, by ProvisioningRequest {asked.name} of class {asked.class_name}: "
        f"{_ANSWERS[asked.answer]}{said}{again}"
    )
