"""Spare shares that are lent: what a job of lower priority is booked on until their owner needs them.

Nothing is stored of it but the two bookings. What a job has as a share is its own, and a spare holds what is left: so
it holds its GPUs again, without a gap, once the other's booking is no more.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from operator import is_

from closeknit.api.names import JobKey
from closeknit.cluster.node.holders import BookedShare


def without_lent(shares: Sequence[BookedShare]) -> Sequence[BookedShare]:
    """The shares of one node, whose spares hold only what no other job is booked on; the same object where they are not
    lent. What the others leave of a spare's CPUs, memory and NICs stays held, as its GPUs do."""
    if not any(share.is_spare for share in shares):
        return shares
    held = [_unlent(share, tuple(_booked_on(share, shares))) if share.is_spare else share for share in shares]
    if all(map(is_, held, shares)):
        return shares
    return tuple(share for share in held if share.gpus or share.needs or share.nics or not share.is_spare)


def _unlent(spare: BookedShare, others: Sequence[BookedShare]) -> BookedShare:
    """A spare without what others are booked on of it; the same object without others."""
    if not others:
        return spare
    lent = {gpu for other in others for gpu in other.gpus}
    taken = Counter[str]()
    for other in others:
        taken.update(dict(other.needs))
    nics = {nic for other in others for nic in other.nics}
    return replace(
        spare,
        gpus=tuple(gpu for gpu in spare.gpus if gpu not in lent),
        needs=tuple((name, amount - taken[name]) for name, amount in spare.needs if amount > taken[name]),
        nics=tuple(nic for nic in spare.nics if nic not in nics),
        has_functions=spare.has_functions and not any(other.has_functions for other in others),
    )


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
