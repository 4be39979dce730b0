"""Whether what the chart has installed works: what `helm test` asks, in a Pod of the operator's image.

Invariant: it writes nothing, and asks for no more than the account of that Pod may read.
"""
