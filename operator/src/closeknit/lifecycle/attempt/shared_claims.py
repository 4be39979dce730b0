"""Claims of a gang that a Pod of another name uses, too: a debugging copy has its original's.

They stay, and hold their GPUs, for as long as that Pod does, whatever becomes of the gang. To wait for them would keep
all other GPUs of the gang idle, and past every quota.
"""

from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import Booking, BookingShare
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.dra import ResourceClaim
from closeknit.lifecycle.attempt.launched_gang import uuids


def shared_claims(job: TrainingJob, held: Booking, cluster: Cluster) -> tuple[ResourceClaim, ...]:
    """Claims under names of the job's children that hold GPUs booked for it."""
    claims = [claim for claim in cluster.claims_of(job.key) if claim.is_shared and claim.devices]
    if not claims:
        return ()
    booked = {uuid for share in held.shares for uuid in _named(cluster, share)}
    return tuple(claim for claim in claims if not booked.isdisjoint(cluster.devices.claimed(claim)))


def _named(cluster: Cluster, share: BookingShare) -> tuple[str, ...]:
    view = cluster.nodes.get(share.node)
    return () if view is None else uuids(view, share) or ()
