"""From when on an elastic job that waits for all of its GPUs makes do with fewer.

The rule: once it has waited for WAITS_FOR_ALL, unless the room that is kept for it is expected to be free within
FORETOLD_SOON.
"""

from datetime import datetime, timedelta

from closeknit.api.objects import TrainingJob
from closeknit.cluster.kueue.workload import Workload
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.status.pauses import over_at
from closeknit.lifecycle.status.pending import traits
from closeknit.lifecycle.transitions.runs import WAITS_FOR_ALL
from closeknit.lifecycle.verdict import Reservation

# Of a wait for all GPUs that is known to end so soon the restart would be the greater part.
FORETOLD_SOON = timedelta(minutes=5)


def fewer_from(job: TrainingJob, workload: Workload | None, now: datetime) -> datetime | None:
    """From when on it starts with fewer; None where it is not told yet that it waits for room, or that its Pods were
    refused: after that pause it goes on where it was. What it waits for Kueue, which its Workload tells, does not
    count."""
    pending = job.status.pending
    known = traits(None if pending is None else pending.reason)
    if pending is None or not (known.is_for_room or known.first_pause_s):
        return None
    ready = moment(pending.queued_since or pending.since) + WAITS_FOR_ALL
    admitted = None if workload is None else workload.condition("Admitted")
    return ready if admitted is None else max(ready, over_at(admitted.last_transition_time, WAITS_FOR_ALL, now))


def all_come_soon(job: TrainingJob, kept: Reservation | None, now: datetime) -> bool:
    """Whether all of its GPUs are expected to be free soon, by the reservation of now. A job that runs longer than it
    declared tells nothing."""
    if kept is None or kept.job != job.key or kept.at is None or kept.late:
        return False
    return kept.at <= now + FORETOLD_SOON
