"""`Api` over HTTP: connections, requests, replies and the lines of a watch.

Invariant: no answer is an error of closeknit.kube.errors, never an exception of a library.
"""
