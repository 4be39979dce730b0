"""The web map: its page, and the stream of what it shows. It only reads.

Invariant: the page has no data, and the stream is given to nobody whose token may not get it now.
"""
