"""What each process needs around its work: log lines, a web server, who may read it, the event loop's lag.

Invariant: it knows nothing of what the process does.
"""
