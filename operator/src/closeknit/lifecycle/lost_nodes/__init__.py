"""Lost nodes of a gang: how they are known to be lost, and which shares stay booked meanwhile.

Invariant: what is kept is held by the job without a gap, and what is lost is held by no one.
"""
