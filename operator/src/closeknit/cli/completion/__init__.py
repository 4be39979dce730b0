"""What a shell completes from the cluster: names of jobs, nodes and namespaces.

Invariant: whatever goes wrong, nothing is printed and nothing is completed.
"""
