"""`closeknit plan`: what the operator would decide for one job, from objects in a file.

Invariant: no cluster is needed: it imports neither `controller` nor `kube`.
"""
