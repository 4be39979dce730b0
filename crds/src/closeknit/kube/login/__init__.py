"""How to reach the API server and who asks: a kubeconfig, or the files of a Pod.

Invariant: no credential leaves this folder but as a header.
"""
