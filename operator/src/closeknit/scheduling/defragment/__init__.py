"""Jobs that move so that free GPUs lie together.

Invariant: nothing moves unless a node or a domain of a level is free as a whole by that, and none is no longer; or, of
those that run, unless a gang that waits then starts.
"""
