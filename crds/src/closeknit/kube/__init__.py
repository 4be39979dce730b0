"""The one door to the API server. It knows no kinds: it is handed resources and decoders.

`api` is the protocol, `errors` what may be raised, `http` the real thing, `reflector` a live copy of one resource. A
second implementation, in memory and with faults, is held to the same behaviour by one conformance suite (tests/faults).
"""
