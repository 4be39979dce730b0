"""The search for one gang: its shares, their nodes, their bandwidth.

Invariant: caches change no answer: a key names all that its value depends on.
"""
