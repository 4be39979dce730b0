"""The ComputeDomain of an attempt: NVIDIA's DRA driver opens NVLink between the nodes of its Pods, and hands each an
IMEX channel, without which CUDA maps no memory of another node."""

from closeknit.launch.gang import Gang, Manifest

KIND = "ComputeDomain"
GROUP, VERSION = "resource.nvidia.com", "v1beta1"


def compute_domain(gang: Gang) -> Manifest:
    """The ComputeDomain, named like the attempt's Service, which owns it.

    NVIDIA's controller makes a claim template of it, from which Kubernetes makes each Pod a claim; until then the
    scheduler holds the Pods back. numNodes 0: each node joins as its Pod comes, without waiting for others.
    """
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": gang.metadata(gang.service, gang.labels),
        "spec": {
            "numNodes": 0,
            "channel": {"allocationMode": "Single", "resourceClaimTemplate": {"name": template_name(gang)}},
        },
    }


def template_name(gang: Gang) -> str:
    """Name of the claim template that NVIDIA's controller makes."""
    return f"{gang.service}-imex"
