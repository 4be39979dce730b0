"""`Api` over HTTP: connections, requests, replies and the lines of a watch.

Invariant: a missing answer is an error of closeknit.kube.errors, never a library's exception.
"""
