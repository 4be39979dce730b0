"""The preflight of a gang: an init container of each worker that runs a short all-reduce on the booked GPUs.

The program travels in the Pod: a ConfigMap of it would need a right of its own, and a Pod alone shows what it ran.
"""

from pathlib import Path

from closeknit.api.names import Role
from closeknit.api.reasons import EndReason
from closeknit.api.trainingjob import Preflight
from closeknit.api.trainingjob_status import EndedAttempt, TrainingJobStatus
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.member import Member
from closeknit.launch.template import PREFLIGHT

# A file of the program's own, so that ruff and mypy read it. It is part of this package like the code beside it, and is
# read once, by the import of that code: no decision depends on a file.
PROGRAM = Path(__file__).with_name("preflight_program.py").read_text(encoding="utf-8").partition('"""\n')[2]
"""What the container runs."""
PORT = 29_300  # ranks meet there before any launcher does
# Of the prediction, which is within a twentieth of what was measured, and is of larger messages.
FLOOR = 0.7
FLOOR_VARIABLE = "CLOSEKNIT_PREFLIGHT_FLOOR"
_NO_PYTHON = '{"skipped": "the image has no python"}'
SHELL = "/bin/sh"
_COMMANDS = (
    "for python in python3 python; do "
    'command -v $python >/dev/null 2>&1 && exec $python -c "$CLOSEKNIT_PREFLIGHT"; done; '
    f"echo '{_NO_PYTHON}' > /dev/termination-log"
)


def with_preflight(gang: Gang, member: Member, trainer: Manifest, spec: Manifest) -> Manifest:
    """The Pod's spec with the preflight last of its init containers; as it is where the job wants none, or can
    have none. `trainer` is
    the finished container, whose image, GPUs, NICs, variables and mounts it has."""
    wanted = gang.job.spec.preflight
    if wanted is Preflight.NEVER or member.role is not Role.WORKER or left_out_since(gang.job.status) is not None:
        return spec
    kept = ("image", "imagePullPolicy", "resources", "securityContext", "volumeMounts", "envFrom")
    ours = _variables(gang, member, is_enforced=wanted is Preflight.ENFORCE)
    names = {entry["name"] for entry in ours}
    container = {
        "name": PREFLIGHT,
        **{field: trainer[field] for field in kept if trainer.get(field) is not None},
        "command": [SHELL, "-c", _COMMANDS],
        "env": [*(entry for entry in trainer["env"] if entry["name"] not in names), *ours],
    }
    return {**spec, "initContainers": [*(spec.get("initContainers") or []), container]}


def left_out_since(status: TrainingJobStatus) -> EndedAttempt | None:
    """The attempt by which is known that the job's image cannot run one; None where it may."""
    ended = reversed(status.attempts)
    return next((attempt for attempt in ended if attempt.reason == EndReason.PREFLIGHT_SKIPPED), None)


def _variables(gang: Gang, member: Member, *, is_enforced: bool) -> list[Manifest]:
    predicted = gang.predicted_gb_s
    values = {
        "CLOSEKNIT_PREFLIGHT": PROGRAM,
        "CLOSEKNIT_PREFLIGHT_RANKS": ",".join(map(str, gang.rank_counts)),
        "CLOSEKNIT_PREFLIGHT_NODE": str(member.index),
        "CLOSEKNIT_PREFLIGHT_MEET": gang.meeting(PORT),
        FLOOR_VARIABLE: "" if predicted is None else f"{FLOOR * predicted:.1f}",
        "CLOSEKNIT_PREFLIGHT_ENFORCE": "1" if is_enforced else "0",
    }
    return [{"name": name, "value": value} for name, value in values.items()]
