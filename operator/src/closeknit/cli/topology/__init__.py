"""One machine for a person: from a cluster, a file or nvidia-smi, as table or picture.

Invariant: it shows what placement sees.
"""
