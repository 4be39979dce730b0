"""One line for each decision that was stored."""

import logging
from typing import Any

from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.booking.booking import assignments, names
from closeknit.lifecycle.writes.plan import Plan

_log = logging.getLogger(__name__)


def log_decision(plan: Plan, before: TrainingJobStatus) -> None:
    """Tells what was decided, if the job's state or the reason why it waits has changed."""
    status = plan.status
    if status is None:
        return
    reason = status.pending.reason if status.pending else ""
    if status.state == before.state and reason == (before.pending.reason if before.pending else ""):
        return
    facts: dict[str, Any] = {"job": plan.job, "attempt": status.attempt, "state": status.state}
    if reason:
        facts["reason"] = reason
    elif plan.notice is not None:
        facts["reason"] = plan.notice.reason
    if status.placement is not None:
        facts["nodes"] = names([node.name for node in assignments(status.placement)])
        if status.placement.predicted_bus_bandwidth_gb_s is not None:
            facts["predicted_gb_s"] = status.placement.predicted_bus_bandwidth_gb_s
    if plan.notice is not None:
        facts["note"] = plan.notice.note
    _log.info("decided", extra=facts)
