"""The kinds of children that a job may have: one entry each is all that the operator needs to make and delete them."""

from dataclasses import dataclass

from closeknit.cluster.store.kinds import Stream
from closeknit.launch.manifests import compute_domain


@dataclass(frozen=True, slots=True)
class ChildKind:
    """One kind of child: where it is written, and where its changes are seen."""

    kind: str
    group: str  # empty for the core group
    version: str
    plural: str
    stream: Stream | None
    """What shows it; None: nobody reads it, and what is known of it is what was answered to our writes."""
    is_awaited: bool
    """Whether its job is left alone after a deletion until that is seen: it holds what the next attempt needs."""
    is_secret: bool = False
    """Whether the operator may not look at one: what has the name that a new one is to get is taken for the job's own,
    for the job's uid is in that name."""


CHILD_KINDS = {
    each.kind: each
    for each in (
        ChildKind("Pod", "", "v1", "pods", Stream.CHILD_PODS, is_awaited=True),
        ChildKind("Service", "", "v1", "services", None, is_awaited=False),
        ChildKind("ConfigMap", "", "v1", "configmaps", None, is_awaited=False),
        ChildKind("Secret", "", "v1", "secrets", None, is_awaited=False, is_secret=True),
        ChildKind(
            compute_domain.KIND, compute_domain.GROUP, compute_domain.VERSION, "computedomains", None, is_awaited=False
        ),
        ChildKind("ResourceClaim", "resource.k8s.io", "v1", "resourceclaims", Stream.RESOURCE_CLAIMS, is_awaited=False),
    )
}
