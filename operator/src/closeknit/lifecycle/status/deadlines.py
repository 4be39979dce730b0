"""When a job is to be over, and when a job that is over is to go.

Both end something for good. So a moment that lies in the future, because the clock was set back since it was written,
ends nothing before that clock has come to it.
"""

from datetime import datetime, timedelta

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType
from closeknit.lifecycle.status.conditions import found, moment


def deadline(job: TrainingJob) -> datetime | None:
    """When the job fails for spec.activeDeadlineSeconds; None without, and of one that has had no GPUs since it was
    created or resumed."""
    length_s, started = job.spec.active_deadline_seconds, job.status.start_time
    if length_s is None or started is None or job.spec.suspend:
        return None
    return moment(started) + timedelta(seconds=length_s)


def expiry(job: TrainingJob) -> datetime | None:
    """When a job that is over is deleted for spec.ttlSecondsAfterFinished; None without, and of one that is not
    over."""
    length_s = job.spec.ttl_seconds_after_finished
    ends = (found(job.status.conditions, each) for each in (ConditionType.SUCCEEDED, ConditionType.FAILED))
    over = next((each for each in ends if each is not None and each.status == "True"), None)
    if length_s is None or over is None:
        return None
    return moment(over.last_transition_time) + timedelta(seconds=length_s)
