"""`closeknit plan`: the operator's decision for one job, from objects in a file.

Invariant: no cluster is needed: it imports neither `controller` nor `kube`.
"""
