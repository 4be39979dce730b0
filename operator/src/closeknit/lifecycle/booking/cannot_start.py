"""Gangs that fit, and could never start."""

from closeknit.api.objects import TrainingJob
from closeknit.api.text.opaque import short
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.job_volumes import Volumes, sources
from closeknit.cluster.objects.storage import ONE_POD
from closeknit.launch.manifests.oversize import ALWAYS_FIT, oversize
from closeknit.lifecycle.attempt.launched_gang import Lost, gang
from closeknit.lifecycle.booking.booked_placement import booking_of, servers_of
from closeknit.placement.values.placement import Placement


def too_large(job: TrainingJob, placement: Placement, cluster: Cluster) -> str | None:
    """Why the gang of this placement could never start, and what to do; None where it can."""
    if len(placement.shares) + servers_of(job) <= ALWAYS_FIT:
        return None
    made = gang(job, booking_of(job, placement, job.status.attempt or 1), cluster, ipc_lock=True)
    return None if isinstance(made, Lost) else oversize(made)


def too_many(job: TrainingJob, placement: Placement, volumes: Volumes) -> str | None:
    """Why not all Pods of this placement could be scheduled, because a claim is for only one; None where they could.

    One node is taken wherever the gang has room on one.
    """
    servers = job.spec.parameter_servers
    templates = [(job.spec.template.spec, len(placement.shares))]
    if servers is not None:
        templates.append((servers.template.spec, servers.replicas))
    for claim in volumes.one_pod:
        pods = sum(count for spec, count in templates if any(source.claim == claim for source in sources(spec)))
        if pods > 1:
            return (
                f"PersistentVolumeClaim {short(claim)} is {ONE_POD}, which one Pod alone may use, and the gang would "
                f"have {pods} Pods with it: use a claim of ReadWriteMany, or ask for no more GPUs than one node has "
                "free"
            )
    return None
