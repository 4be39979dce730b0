"""The collections of the API server that the operator reads and writes."""

from closeknit.api.names import GROUP, VERSION
from closeknit.kube.api import Resource

TRAINING_JOBS = Resource(GROUP, VERSION, "trainingjobs")
PODS = Resource("", "v1", "pods")
SERVICES = Resource("", "v1", "services")
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims")
EVENTS = Resource("events.k8s.io", "v1", "events")

BY_KIND = {"Pod": PODS, "Service": SERVICES, "ResourceClaim": RESOURCE_CLAIMS}
