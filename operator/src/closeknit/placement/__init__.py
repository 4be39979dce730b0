"""The decision for one gang: nodes, exact GPUs, ranks, predicted bandwidth, or a refusal. Pure.

Invariant: node order and memory change no answer.
"""
