"""The kinds of children of a job: one entry each is all that the operator needs to make and delete them."""

from dataclasses import dataclass

from closeknit.cluster.store.watched_kinds import Stream
from closeknit.launch.manifests import compute_domain


@dataclass(frozen=True, slots=True)
class ChildKind:
    """One kind of child: where it is written, and where its changes are seen."""

    kind: str
    group: str  # empty for the core group
    version: str
    plural: str
    stream: Stream | None
    """The stream that shows it; None: no stream, only our writes' answers tell of it."""
    is_awaited: bool
    """Whether its job rests after a deletion until that is seen: it holds what the next attempt needs."""
    is_secret: bool = False
    """Whether the operator may not read one: an existing one of the name counts as the job's own, because the name
    contains the job's uid."""


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
