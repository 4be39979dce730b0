"""What worker Pods tolerate beside their template: one definition for the Pods and for the choice of nodes."""

from closeknit.api.names import GPU_RESOURCE

# GPU nodes are commonly tainted so, to keep Pods away that need no GPU: by default on GKE and OKE, elsewhere by admins.
GPU_TOLERATION = {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}
