"""The gang's own sidecar in each of its Pods: what ranks cannot tell, and the operator cannot see.

Invariant: the standard library alone, and no right on the API.
"""
