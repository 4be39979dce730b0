"""One job brought to its verdict: attempts, health, status, writes. Pure.

Invariant: level-triggered: a Plan follows from what is stored now.
"""
