"""What /metrics shows of the whole cluster, and of the streams that it is read by.

Invariant: nothing here is worked out in a scrape but what is at hand; the rest is counted by the thread that decides.
"""
