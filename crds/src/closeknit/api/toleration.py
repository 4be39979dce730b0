"""What worker Pods tolerate beside their template: one definition for the Pods and for the choice of nodes."""

from typing import Any

from closeknit.api.affinity import Operator, required_node_affinity
from closeknit.api.names import GPU_RESOURCE
from closeknit.api.text.opaque import MalformedError

# GPU nodes are commonly tainted so, to keep Pods away that need no GPU: by default on GKE and OKE, elsewhere by admins.
GPU_TOLERATION = {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}
ARCHITECTURE = "kubernetes.io/arch"  # label of every node, and of Arm nodes on GKE and ACK a taint, too


def architecture_tolerations(spec: dict[str, Any]) -> list[dict[str, str]]:
    """Of a template that requires nodes of an architecture that of their taint, which keeps away what was not built
    for them. GKE and ACK add the same to such a Pod themselves."""
    taint = {"key": ARCHITECTURE, "operator": "Equal", "effect": "NoSchedule"}
    return [{**taint, "value": each} for each in sorted(_architectures(spec))]


def _architectures(spec: dict[str, Any]) -> set[str]:
    """Those that the template requires by name. What of it is malformed is ignored here; launch refuses it."""
    selector = spec.get("nodeSelector")
    selected = selector.get(ARCHITECTURE) if isinstance(selector, dict) else None
    found = {selected} if isinstance(selected, str) else set()
    try:
        affinity = required_node_affinity(spec, "spec")
    except MalformedError:
        return found
    for term in affinity.terms if affinity is not None else ():
        for each in term.labels:
            if each.key == ARCHITECTURE and each.operator is Operator.IN:
                found |= each.values
    return found
