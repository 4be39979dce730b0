"""Traits of each reason to wait: one closed table. A new reason needs its row here, and a test checks that."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from closeknit.api.reasons import PendingReason


class Trait(NamedTuple):
    """Facts about a reason that decisions use."""

    is_for_room: bool = False
    """GPUs freed by others may end it."""
    is_of_placement: bool = False
    """Placement finds it: another question may have another answer."""
    ends_by_others: bool = False
    """GPUs, objects or rights of others end it. The words of all other reasons advise to change the spec."""
    is_admitted: bool = True
    """The job is acceptable; the cluster has no place for it yet."""
    is_probed: bool = False
    """The API server refused a Pod: a dry run comes first."""
    is_of_namespace: bool = False
    """The refusal concerns the whole namespace, not only the job."""
    stays_told: bool = False
    """Another job's try does not change it: the job itself lacks something, or the wait has an end."""
    first_pause_s: int = 0
    """Before a refused write is tried again: soon at first, then at the pace of people. A name is freed by its holder,
    a policy or a quota is changed by an administrator, and no event tells of it. 0 where no write was refused."""
    longest_pause_s: int = 0


_ROOM = Trait(is_for_room=True, is_of_placement=True)
_POLICY = Trait(first_pause_s=15, longest_pause_s=300)

PENDING: Mapping[PendingReason, Trait] = MappingProxyType(
    {
        PendingReason.INSUFFICIENT_GPUS: _ROOM._replace(ends_by_others=True),
        PendingReason.GPUS_NOT_OFFERED: _ROOM._replace(ends_by_others=True),
        PendingReason.INSUFFICIENT_RESOURCES: _ROOM,
        PendingReason.NODES_LOST: _ROOM._replace(ends_by_others=True, stays_told=True),
        PendingReason.MOVE_PENDING: Trait(ends_by_others=True, stays_told=True),
        PendingReason.PREEMPTION_PENDING: Trait(ends_by_others=True, stays_told=True),
        PendingReason.NO_NVLINK_ISLAND: _ROOM,
        PendingReason.NO_DOMAIN: _ROOM,
        PendingReason.WAITING_FOR_PREFERRED: _ROOM._replace(ends_by_others=True, stays_told=True),
        PendingReason.BEHIND_RESERVATION: _ROOM._replace(ends_by_others=True),
        PendingReason.UNKNOWN_LEVEL: Trait(is_of_placement=True),
        PendingReason.UNKNOWN_TRAFFIC_CLASS: Trait(),
        PendingReason.NO_MATCHING_GPU: Trait(is_of_placement=True),
        PendingReason.BANDWIDTH_BELOW_MINIMUM: _ROOM,
        PendingReason.RDMA_UNAVAILABLE: _ROOM,
        PendingReason.VOLUME_UNAVAILABLE: Trait(ends_by_others=True),
        PendingReason.NOT_SUPPORTED: Trait(is_admitted=False),
        PendingReason.TEMPLATE_INVALID: _POLICY._replace(is_admitted=False, is_probed=True, stays_told=True),
        PendingReason.CHANGED_ON_THE_WAY: _POLICY._replace(ends_by_others=True, stays_told=True),
        PendingReason.ADMISSION_UNAVAILABLE: _POLICY._replace(
            ends_by_others=True, is_probed=True, stays_told=True, longest_pause_s=60
        ),
        PendingReason.NAME_CONFLICT: Trait(
            ends_by_others=True, is_probed=True, stays_told=True, first_pause_s=2, longest_pause_s=60
        ),
        PendingReason.QUOTA_EXCEEDED: Trait(
            ends_by_others=True, is_probed=True, is_of_namespace=True, first_pause_s=2, longest_pause_s=60
        ),
        PendingReason.NAMESPACE_NOT_SERVED: _POLICY._replace(
            ends_by_others=True, is_admitted=False, is_probed=True, is_of_namespace=True
        ),
        PendingReason.WAITING_FOR_KUEUE: Trait(ends_by_others=True, stays_told=True),
        PendingReason.INTERNAL_ERROR: Trait(),
    }
)

_BY_TEXT: Mapping[str | None, Trait] = {str(reason): trait for reason, trait in PENDING.items()}
_NOTHING_KNOWN = Trait()


def traits(reason: str | None) -> Trait:
    """Those of a reason as a status says it; of none, and of one of another version, nothing is known."""
    return _BY_TEXT.get(reason, _NOTHING_KNOWN)
