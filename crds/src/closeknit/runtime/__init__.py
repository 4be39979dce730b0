"""Common parts of both processes: log lines, a web server with its access checks, the event loop's lag.

Invariant: it does not depend on the process.
"""
