"""Every variable of one trainer: its value, whose it is, and why it was set."""

from dataclasses import dataclass
from enum import StrEnum

from closeknit.api.names import JobKey
from closeknit.api.text.nccl_version import ALL, NcclVersion
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.plan.plan_decision import HeldAlready, Sitting, over_tcp
from closeknit.launch.environment.environment import environment, shown
from closeknit.launch.environment.nccl import left_alone
from closeknit.launch.environment.nccl_versions import read_by
from closeknit.lifecycle.status.degraded import degradation


class Setter(StrEnum):
    """Whose a variable is."""

    CLOSEKNIT = "closeknit"
    TEMPLATE = "template"  # the user's


@dataclass(frozen=True, slots=True)
class Line:
    """One variable."""

    name: str
    value: str
    """Of one that Kubernetes fills in later its source, for example <secretKeyRef>."""
    setter: Setter
    why: str


@dataclass(frozen=True, slots=True)
class EnvironmentSheet:
    """What is set in the trainer of one node rank."""

    job: JobKey
    node: str
    node_rank: int
    lines: tuple[Line, ...]
    """In the order of the container: what closeknit sets, then the template's own."""
    warnings: tuple[str, ...]
    """Harmful settings of the template's."""
    over_tcp: str | None
    """Why ranks of different nodes talk over TCP; None where they do not."""
    lacks: str | None
    """What the gang has to do without."""
    booked: HeldAlready | None
    """What the job holds that this one would replace."""
    left: tuple[str, ...]
    """Variables that people set for such a gang, and that are better left to NCCL."""
    nccl_version: str | None
    """Version of NCCL in its Pods; None until one has told it."""


def sheet(found: Sitting, node_rank: int) -> EnvironmentSheet:
    """What is set in the trainer of this node rank. Raises NotThere."""
    gang = found.gang()
    if gang is None:
        raise NotThere(f"a node of {found.job.key} is no longer what was booked; the operator will place it again")
    if not 0 <= node_rank < len(gang.members):
        raise NotThere(f"{found.job.key} has node ranks 0 to {len(gang.members) - 1}, and none of {node_rank}")
    member = gang.members[node_rank]
    made = environment(gang, node_rank)
    ours = {variable.name: variable for variable in made.overridden}
    version = gang.nccl_version
    lines = [
        Line(each.name, each.value, Setter.CLOSEKNIT, _with_versions(each.why, each.name, each.value, version))
        for each in made.variables
    ]
    own = gang.users_environment(member.role)
    for name, entry in own.items():
        kept_out = ours.get(name)
        why = "" if kept_out is None else f"closeknit would set {kept_out.value}: {kept_out.why}"
        value = None if entry.get("valueFrom") else shown(entry)
        lines.append(Line(name, shown(entry), Setter.TEMPLATE, _with_versions(why, name, value, version)))
    lacking = degradation(gang, found.cluster)
    return EnvironmentSheet(
        job=found.job.key,
        node=member.node,
        node_rank=node_rank,
        lines=tuple(lines),
        warnings=tuple(map(str, made.warnings)),
        over_tcp=over_tcp(gang),
        lacks=None if lacking is None else lacking.told(is_booked=found.booked is not None),
        booked=found.booked,
        left=tuple(name for name in left_alone(gang) if name not in own),
        nccl_version=None if version is None else str(version),
    )


def _with_versions(why: str, name: str, value: str | None, version: NcclVersion | None) -> str:
    """Why a variable has its value, and which versions of NCCL read it, unless all do or that of the Pods does."""
    reads = read_by(name, value)
    if reads is ALL or (version is not None and reads.has(version)):
        return why
    words = f"read by {reads}" + ("" if version is None else f", and not by the {version} of its Pods")
    return f"{why}; {words}" if why else words
