"""The order in which jobs are looked at."""

from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.scheduling.memo.entries import QueuePlace


def queue_place(cluster: Cluster, job: TrainingJob) -> QueuePlace:
    """What sorts the jobs: highest priority first, then the oldest, then by namespace and name.

    A job without a creationTimestamp, which only a file can have, comes after those of its priority that have one.
    """
    created = job.metadata.creation_timestamp
    return -cluster.priority(job), created is None, created or "", job.key.namespace, job.key.name
