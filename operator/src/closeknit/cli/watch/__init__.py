"""`closeknit watch`: one job from the queue to its end.

Invariant: it asks for one job and its Pods, once a second at most.
"""
