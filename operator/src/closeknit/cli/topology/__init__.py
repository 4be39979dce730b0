"""One machine as a person looks at it: from a cluster, a file or nvidia-smi, as table or picture.

Invariant: it shows what placement sees.
"""
