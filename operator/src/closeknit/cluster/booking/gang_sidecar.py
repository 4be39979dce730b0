"""The gang's sidecar: which jobs can have it, and what it asks of a node."""

from collections.abc import Mapping
from typing import Any

from closeknit.api.names import TRAINER_CONTAINER
from closeknit.api.reasons import EndReason
from closeknit.api.trainingjob import PackedTemplate, PodTemplate, TrainingJobSpec
from closeknit.api.trainingjob_status import EndedAttempt, TrainingJobStatus
from closeknit.cluster.booking.in_place_exit_codes import asks_for_restarts
from closeknit.cluster.objects.pod_requests import Needs, needs, needs_of

# Of the sidecar and of the barrier. Requests equal limits, or a Guaranteed Pod would lose its own CPUs. The sidecar has
# 17 MiB and takes next to no CPU time; with less than a fifth of a CPU it would take a second to start.
SIDECAR_RESOURCES: Mapping[str, str] = {"cpu": "200m", "memory": "64Mi"}


def may_have_sidecar(spec: TrainingJobSpec) -> bool:
    """Whether its Pods can have the gang's sidecar: it asks for restarts, or has a deadline for progress, each template
    names the command of its trainer, whose end is told by a wrapper, and none has restart rules of its own for it."""
    if not asks_for_restarts(spec) and (spec.restart is None or spec.restart.stall_deadline is None):
        return False
    servers = spec.parameter_servers
    templates = [spec.template, *([servers.template] if servers else [])]
    return all(template.once(_leaves_restarts_open) for template in templates)


def _leaves_restarts_open(template: PodTemplate) -> bool:
    containers = template.spec.get("containers") or []
    own = [each for each in containers if len(containers) == 1 or each.get("name") == TRAINER_CONTAINER]
    return all(
        isinstance(each.get("command"), list)
        and bool(each["command"])
        and not each.get("restartPolicyRules")
        and each.get("restartPolicy") in (None, "Never")
        for each in own
    )


def refused_since(status: TrainingJobStatus) -> EndedAttempt | None:
    """The attempt by which is known that the job's Pods cannot have the sidecar; None where they may."""
    ended = reversed(status.attempts)
    return next((attempt for attempt in ended if attempt.reason == EndReason.SIDECAR_REFUSED), None)


def worker_needs(spec: TrainingJobSpec) -> Needs:
    """Each worker's needs of its node besides GPUs, those of the sidecar included."""
    return _with_sidecar(spec.template) if may_have_sidecar(spec) else needs_of(spec.template)


def server_needs(spec: TrainingJobSpec) -> Needs:
    """The same of each parameter server; none for a job without servers."""
    if spec.parameter_servers is None:
        return ()
    template = spec.parameter_servers.template
    return _with_sidecar(template) if may_have_sidecar(spec) else needs_of(template)


def _with_sidecar(template: PackedTemplate) -> Needs:
    return template.once(_needs_with_sidecar)


def _needs_with_sidecar(template: PodTemplate) -> Needs:
    ours: Mapping[str, Any] = {"name": "ours", "resources": {"requests": SIDECAR_RESOURCES}}
    spec = template.spec
    inits, containers = spec.get("initContainers") or [], spec["containers"]
    return needs({**spec, "initContainers": [ours, *inits], "containers": [*containers, ours]})
