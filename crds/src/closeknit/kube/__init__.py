"""The one door to the API server: protocol `Api`, reflector, errors, backoff.

Invariant: it knows no kinds: callers give resources and decoders.
"""
