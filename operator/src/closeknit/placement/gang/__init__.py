"""The search for one gang: how it is cut into shares, where they lie, what they reach.

Invariant: caches change no answer: a key names all that its value rests on.
"""
