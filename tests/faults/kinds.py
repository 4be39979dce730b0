"""What the in-memory API server knows about each kind, as data: where real kinds differ in ways that matter to us."""

from collections.abc import Callable
from dataclasses import dataclass, field

from closeknit.kube.api import JsonObject, Resource


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind, with the strategy that the API server has for it."""

    resource: Resource
    kind: str
    has_status: bool = (
        False  # the status subresource: main writes leave status alone, status writes leave the rest alone
    )
    keeps_status_on_create: bool = False  # Nodes alone are created with the status in the body
    initial_status: JsonObject = field(default_factory=dict)
    has_generation: bool = False  # counts the changes of everything but metadata and status
    fields: tuple[str, ...] = ()  # fields that a selector may name, besides metadata.name and metadata.namespace
    answer: Callable[[JsonObject], JsonObject] | None = None  # status of a kind that is asked, not stored


def _core(plural: str, *, namespaced: bool = True) -> Resource:
    return Resource("", "v1", plural, namespaced)


PODS = _core("pods")
NODES = _core("nodes", namespaced=False)
CONFIG_MAPS = _core("configmaps")
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
OWN_ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)
SUBJECT_ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)


def _ours(plural: str, kind: str, *, namespaced: bool = False) -> Kind:
    return Kind(Resource("closeknit.dev", "v1alpha1", plural, namespaced), kind, has_status=True, has_generation=True)


# As Kubernetes 1.36 treats them (the registries' PrepareForCreate and PrepareForUpdate), as far as the conformance
# suite and this project's programs look.
STOCK_KINDS = (
    _ours("trainingjobs", "TrainingJob", namespaced=True),
    _ours("nodetopologies", "NodeTopology"),
    _ours("clustertopologies", "ClusterTopology"),
    Kind(
        PODS,
        "Pod",
        has_status=True,
        initial_status={"phase": "Pending"},
        has_generation=True,
        fields=("spec.nodeName", "status.phase"),
    ),
    Kind(NODES, "Node", has_status=True, keeps_status_on_create=True),
    Kind(CONFIG_MAPS, "ConfigMap"),
    Kind(_core("services"), "Service", has_status=True),
    Kind(_core("secrets"), "Secret"),
    Kind(_core("resourcequotas"), "ResourceQuota", has_status=True),
    Kind(_core("namespaces", namespaced=False), "Namespace", has_status=True),
    Kind(Resource("events.k8s.io", "v1", "events"), "Event"),
    Kind(Resource("coordination.k8s.io", "v1", "leases"), "Lease"),
    Kind(Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False), "PriorityClass"),
    Kind(Resource("resource.k8s.io", "v1", "resourceclaims"), "ResourceClaim", has_status=True),
    Kind(Resource("resource.k8s.io", "v1", "resourceslices", namespaced=False), "ResourceSlice", has_generation=True),
    Kind(Resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False), "DeviceClass", has_generation=True),
    Kind(_core("persistentvolumeclaims"), "PersistentVolumeClaim", has_status=True),
    Kind(_core("persistentvolumes", namespaced=False), "PersistentVolume", has_status=True),
    Kind(Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False), "StorageClass"),
    Kind(TOKEN_REVIEWS, "TokenReview", answer=lambda _: {"user": {}}),
    Kind(OWN_ACCESS_REVIEWS, "SelfSubjectAccessReview", answer=lambda _: {"allowed": True}),
    Kind(SUBJECT_ACCESS_REVIEWS, "SubjectAccessReview", answer=lambda _: {"allowed": False}),
)
