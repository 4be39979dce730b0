"""The one door to the API server: protocol `Api`, reflector, errors, backoff.

Invariant: it knows no kinds: it is handed resources and decoders.
"""
