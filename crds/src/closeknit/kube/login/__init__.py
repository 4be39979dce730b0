"""Address and login for the API server: a kubeconfig, or the files of a Pod.

Invariant: a credential leaves this folder only as a header.
"""
