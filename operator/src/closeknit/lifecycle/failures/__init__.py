"""Failures of a gang: dead nodes, ill devices, failed Pods; and which shares stay booked meanwhile.

Invariant: what is kept is held by the job without a gap, and what is lost is held by no one.
"""
