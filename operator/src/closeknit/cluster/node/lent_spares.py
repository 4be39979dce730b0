"""Spare shares that are lent: what a job of lower priority is booked on until their owner needs them.

Nothing is stored of it but the two bookings. What a job has as a share is its own, and a spare holds what is left: so
it holds its GPUs again, without a gap, once the other's booking is no more.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from operator import is_

from closeknit.api.names import JobKey
from closeknit.cluster.node.holders import BookedShare


def without_lent(shares: Sequence[BookedShare]) -> Sequence[BookedShare]:
    """The shares of one node, whose spares hold only what no other job is booked on; the same object where they are not
    lent. Of a spare that is lent in part its Pod's other needs count no more: the other's do."""
    if not any(share.is_spare for share in shares):
        return shares
    held: list[BookedShare] = []
    for share in shares:
        lent = {gpu for other in _booked_on(share, shares) for gpu in other.gpus} if share.is_spare else ()
        left = tuple(gpu for gpu in share.gpus if gpu not in lent)
        if left == share.gpus:
            held.append(share)
        elif left:
            held.append(replace(share, gpus=left, needs=(), nics=(), has_functions=False))
    return shares if len(held) == len(shares) and all(map(is_, held, shares)) else tuple(held)


def borrowers(owner: JobKey, shares: Sequence[BookedShare]) -> Iterator[JobKey]:
    """Jobs that are booked on a spare that a job has on the node of these shares."""
    for share in shares:
        if share.is_spare and share.job == owner:
            yield from (other.job for other in _booked_on(share, shares))


def owners(borrower: JobKey, gpus: Collection[int], shares: Sequence[BookedShare]) -> Iterator[JobKey]:
    """Other jobs that have spares with some of these GPUs on the node of these shares."""
    for share in shares:
        if share.is_spare and share.job != borrower and not set(share.gpus).isdisjoint(gpus):
            yield share.job


def _booked_on(spare: BookedShare, shares: Sequence[BookedShare]) -> Iterator[BookedShare]:
    """The shares of other jobs with GPUs of a spare."""
    gpus = set(spare.gpus)
    return (
        share for share in shares if not share.is_spare and share.job != spare.job and not gpus.isdisjoint(share.gpus)
    )
