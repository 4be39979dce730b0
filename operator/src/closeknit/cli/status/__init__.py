"""`closeknit status`: the cluster at a glance.

Invariant: of a running cluster it reads what the operator has counted, and no list of nodes or Pods.
"""
