"""What /metrics shows of the whole cluster, and of the streams that it is read by.

Invariant: a scrape works nothing out, and is not written on the event loop.
"""
