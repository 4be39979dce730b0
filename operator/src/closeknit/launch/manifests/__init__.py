"""Pods, claims, Services and Secrets of a gang as objects.

Invariant: names are a function of job, attempt, role and index.
"""
