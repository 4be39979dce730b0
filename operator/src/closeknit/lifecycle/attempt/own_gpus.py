"""GPUs of a job's own older Pods: the job may count on them, because they are its own as soon as these Pods are
gone."""

from collections.abc import Sequence

from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.store.watched_kinds import ObjectChange, Stream
from closeknit.lifecycle.attempt.own_pods import is_own, own_claims


def with_own_gpus_free(job: TrainingJob, pods: Sequence[Pod], cluster: Cluster) -> Cluster:
    """The cluster for a job without a booking once its own Pods and their claims are gone; the same object where they
    hold nothing relevant."""
    gone = own_pods_gone(job, pods, cluster)
    return cluster.after(gone) if gone else cluster


def own_pods_gone(job: TrainingJob, pods: Sequence[Pod], cluster: Cluster) -> tuple[ObjectChange, ...]:
    """The end of a job's own Pods and claims, as far as they hold something relevant.

    A Pod on a node that is left out anyway does not matter: only that node is concerned by whether it ever goes.
    """
    own = tuple(pod for pod in pods if is_own(pod, job))
    held = [pod for pod in own if pod.is_live and pod.place and _is_fit(cluster, pod.place)]
    there = {pod.key for pod in held}
    gone = {pod.key for pod in own} - there
    claims = [
        claim for claim in own_claims(job, own, cluster) if (claim.devices or claim.nics) and claim.key not in gone
    ]
    return (
        *(ObjectChange(Stream.CHILD_PODS, pod.key, None) for pod in held),
        *(ObjectChange(Stream.RESOURCE_CLAIMS, claim.key, None) for claim in claims),
    )


def _is_fit(cluster: Cluster, node: str) -> bool:
    view = cluster.nodes.get(node)
    return view is not None and view.exclusion is None
