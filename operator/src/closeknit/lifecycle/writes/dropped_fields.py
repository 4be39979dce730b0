"""Statuses that the API server takes and does not keep whole.

A CRD that is older than this operator has not all of its fields. The API server drops those without a word, and every
later decision would write them again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.lifecycle.writes.answers import Answers
from closeknit.lifecycle.writes.plan import Plan


def without_unkept(plan: Plan, stored: TrainingJobStatus, answers: Answers) -> Plan:
    """The Plan without a status by which the job, as we wrote it last, would get nothing but fields that it got by that
    very write. So each is written twice, and once more after each change that somebody else makes to the job: the CRD
    may be another one by then."""
    wanted, is_ours = plan.status, plan.resource_version == answers.written
    if wanted is None or plan.is_followed_by_children or not (is_ours or answers.added):
        return plan
    if (wanted.state, wanted.message) != (stored.state, stored.message):
        return plan  # news, as of most of the many that wait: found without a look at the rest
    added = additions(_plain(wanted), _plain(stored))
    if not added:
        return plan
    if is_ours and added <= answers.added:
        return replace(plan, status=None, notice=None, telling=None, unkept=added)
    return replace(plan, adds_fields=added)


def additions(wanted: Any, stored: Any, path: str = "status") -> frozenset[str] | None:
    """What `wanted` has and `stored` lacks, as paths on the wire, where they differ in nothing else; else None."""
    if isinstance(wanted, Mapping) and isinstance(stored, Mapping):
        if stored.keys() - wanted.keys():
            return None
        lacking = [f"{path}.{name}" for name in wanted.keys() - stored.keys()]
        inner = [additions(wanted[name], stored[name], f"{path}.{name}") for name in stored]
    elif isinstance(wanted, list) and isinstance(stored, list) and len(wanted) == len(stored):
        lacking = []
        inner = [additions(*pair, f"{path}[]") for pair in zip(wanted, stored, strict=True)]
    else:
        return frozenset() if wanted == stored else None
    found = frozenset(lacking)
    for each in inner:
        if each is None:
            return None
        found |= each
    return found


def _plain(status: TrainingJobStatus) -> dict[str, Any]:
    """A field at its default is as good as none."""
    return status.model_dump(mode="json", by_alias=True, exclude_defaults=True)
