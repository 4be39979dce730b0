"""The order in which jobs are looked at."""

from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster


def queue(cluster: Cluster) -> list[TrainingJob]:
    """All jobs: highest priority first, then the oldest, then by namespace and name.

    A job without a creationTimestamp, which only a file can have, comes after those of its priority that have one.
    """

    def place(job: TrainingJob) -> tuple[int, bool, str, str, str]:
        created = job.metadata.creation_timestamp
        return -cluster.priority(job), created is None, created or "", job.key.namespace, job.key.name

    return sorted(cluster.jobs.values(), key=place)
