"""The collections of the API server that the operator reads and writes, or asks its rights of."""

from closeknit.api.names import GROUP, KUEUE_GROUP, VERSION
from closeknit.cluster.capacity.provisioning import AUTOSCALING_GROUP, AUTOSCALING_VERSION
from closeknit.cluster.kueue.workload import KUEUE_VERSION
from closeknit.kube.api import Resource
from closeknit.lifecycle.device_taints import TAINT_RULE_VERSIONS
from closeknit.lifecycle.writes.child_kinds import CHILD_KINDS

TRAINING_JOBS = Resource(GROUP, VERSION, "trainingjobs")
CLUSTER_TOPOLOGIES = Resource(GROUP, VERSION, "clustertopologies", namespaced=False)
NODE_TOPOLOGIES = Resource(GROUP, VERSION, "nodetopologies", namespaced=False)
DEVICE_TAINT_RULES = tuple(
    Resource("resource.k8s.io", version, "devicetaintrules", namespaced=False) for version in TAINT_RULE_VERSIONS
)
"""The newest first; a cluster may serve none."""
WORKLOADS = Resource(KUEUE_GROUP, KUEUE_VERSION, "workloads")
PROVISIONING_REQUESTS = Resource(AUTOSCALING_GROUP, AUTOSCALING_VERSION, "provisioningrequests")
POD_TEMPLATES = Resource("", "v1", "podtemplates")
EVENTS = Resource("events.k8s.io", "v1", "events")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")

BY_KIND = {each.kind: Resource(each.group, each.version, each.plural) for each in CHILD_KINDS.values()}
"""Of a job's children."""
PODS = BY_KIND["Pod"]
SERVICES = BY_KIND["Service"]
RESOURCE_CLAIMS = BY_KIND["ResourceClaim"]
