"""Pods in the few fields that are kept, and what others say of them, as values.

Invariant: words of schedulers, kubelets and drivers are read here and nowhere else.
"""
