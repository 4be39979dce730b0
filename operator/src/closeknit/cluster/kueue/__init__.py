"""What Kueue says of jobs: their Workloads, the flavours of its resources, and what follows for the jobs' Pods. Pure.

Invariant: an unreadable object costs only itself, and no job loses what it holds by it.
"""
