"""Pods in their kept fields, and what others report of them, as values.

Invariant: messages of schedulers, kubelets and drivers are read only here.
"""
