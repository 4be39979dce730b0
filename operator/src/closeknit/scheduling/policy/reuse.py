"""Whether a job could go on with the very GPUs that it holds, after its Pods have ended there."""

from datetime import datetime

from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import Booking
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import Holder, HolderKind
from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.attempt.launched_gang import uuids
from closeknit.lifecycle.attempt.shared_claims import shared_claims
from closeknit.placement.candidates.node_filter import admits
from closeknit.placement.values.request import request


def is_fit_again(job: TrainingJob, held: Booking, cluster: Cluster, now: datetime) -> bool:
    """Whether nobody else has come to hold the booked GPUs, and their nodes are still fit for new Pods of the job."""
    if shared_claims(job, held, cluster):
        return False
    asked = request(job.key, job.spec, cluster.volumes_of(job).required)
    ours = {None, Holder(HolderKind.JOB, job.key.namespace, job.key.name)}
    away = avoided_nodes(job, cluster, now)
    for share in held.shares:
        view = cluster.nodes.get(share.node)
        if view is None or view.exclusion is not None or share.node in away.nodes or not admits(view, asked):
            return False
        if not away.devices.get(share.node, frozenset()).isdisjoint(uuids(view, share) or ()):
            return False
        if share.mig_device:
            has = next((device for device in view.mig if device.uuid == share.mig_device), None)
            if has is None or has.fault is not None or has.holder not in ours:
                return False
        elif any(index not in view.usable or view.holders.get(index) not in ours for index in share.gpus):
            return False
    return True
