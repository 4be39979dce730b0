"""One node's report by its agent: the machine graph of its NodeTopology, and what runs or fails on it.

A NodeTopology as pydantic models weighs ten times its graph, so the graph is made where the object is decoded and the
models are let go.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from operator import attrgetter

import msgspec
from pydantic import ValidationError

from closeknit.api.names import LEMON_CLEARED_ANNOTATION
from closeknit.api.nodetopology import Confidence
from closeknit.api.nodetopology_status import LemonStatus, NodeTopologyStatus, RunEnd, TrafficPath
from closeknit.api.objects import NodeTopology
from closeknit.api.reasons import MachineConditionType
from closeknit.api.text.opaque import short
from closeknit.api.text.printable import printable
from closeknit.api.wire import FieldError
from closeknit.cluster.objects.kubelet import UNTOLD, KubeletPolicies, kubelet
from closeknit.cluster.objects.meta import Metadata, WireStruct
from closeknit.machine.graph import InvalidTopology, Machine
from closeknit.machine.health import unusable_gpus, working_machine

SAID = 512  # characters of what an agent says of its node: a refusal has words for other nodes, too


@dataclass(frozen=True, slots=True)
class ReportedAllocation:
    """The kubelet's devices of one container."""

    namespace: str
    pod: str
    pod_uid: str | None
    devices: tuple[str, ...]
    """UUIDs of GPUs and MIG devices."""
    paths: tuple[TrafficPath, ...] = ()
    """Paths of its data. With Socket among them all paths are counted, and missing ones are silent."""


@dataclass(frozen=True, slots=True)
class AgentReport:
    """The NodeTopology of one node; `machine` is None exactly where `invalid` says why."""

    name: str
    generation: int
    machine: Machine | None
    invalid: str | None
    """The object's fault, with the field's name."""
    unhealthy: Mapping[int, str]
    """NVML indexes of unhealthy GPUs, with the reasons as text: `XID79, FellOffBus`; empty text without any."""
    not_ready: str | None
    """Why the agent calls the node unfit, as a clause; None if it does not."""
    heartbeat: datetime | None
    """Last heartbeat; None without one."""
    allocations: tuple[ReportedAllocation, ...] | None
    """None where the kubelet was not asked, or did not answer."""
    memlock_bytes: int | None = None
    """Memory that containers may lock, -1 for unlimited; None if unknown."""
    kubelet: KubeletPolicies = UNTOLD
    hides_levels: bool = False
    """Whether its levels of PCIe are of low confidence."""
    made: datetime | None = None
    """When the NodeTopology was made: with its Node, which may have been another machine before."""
    run_ends: tuple[RunEnd, ...] | None = None
    """Runs that ended by this node, as the operator has stored them; None without any."""
    lemon: LemonStatus | None = None
    """Likewise."""
    lemon_cleared: datetime | None = None
    """Until when an administrator has cleared them."""


_said = attrgetter(*(each.name for each in fields(AgentReport) if each.name != "heartbeat"))


def differ_in_heartbeat_alone(one: AgentReport, other: AgentReport) -> bool:
    """Whether two reports of one node say the same, at different moments perhaps."""
    return bool(_said(one) == _said(other))


class _Head(WireStruct, frozen=True):
    metadata: Metadata


def report_from_json(document: bytes) -> AgentReport:
    """The report of a NodeTopology's JSON. Only one without a name raises (msgspec.ValidationError)."""
    try:
        return report(NodeTopology.model_validate_json(document))
    except ValidationError as error:
        return _unreadable(msgspec.json.decode(document, type=_Head).metadata.name, error)


def report_from_builtins(document: object) -> AgentReport:
    """The report of a NodeTopology as plain dicts and lists. Only one without a name raises."""
    try:
        return report(NodeTopology.parse(document))
    except ValidationError as error:
        return _unreadable(msgspec.convert(document, type=_Head).metadata.name, error)


def report(topology: NodeTopology) -> AgentReport:
    """The report of a NodeTopology."""
    status = topology.status
    graph: Machine | None = None
    invalid: str | None = None
    try:
        graph = working_machine(topology.spec, status)
    except InvalidTopology as error:
        invalid = str(error)
    return AgentReport(
        name=topology.metadata.name,
        generation=topology.metadata.generation,
        machine=graph,
        invalid=invalid,
        unhealthy={index: ", ".join(reasons) for index, reasons in unusable_gpus(status).items()},
        not_ready=_not_ready(status),
        heartbeat=moment(status.heartbeat_time),
        allocations=_allocations(status),
        memlock_bytes=topology.spec.capabilities.memlock_bytes,
        kubelet=kubelet(topology.spec.capabilities),
        hides_levels=topology.spec.source.pcie_confidence is Confidence.LOW,
        made=moment(topology.metadata.creation_timestamp),
        run_ends=tuple(status.run_ends or ()) or None,
        lemon=status.lemon,
        lemon_cleared=moment(topology.metadata.annotations.get(LEMON_CLEARED_ANNOTATION)),
    )


def settled(new: AgentReport, old: AgentReport | None) -> AgentReport:
    """`new`, with the equal parts of `old`, so that results computed from them stay known."""
    if old is None:
        return new
    return replace(
        new,
        machine=old.machine if new.machine == old.machine else new.machine,
        unhealthy=old.unhealthy if new.unhealthy == old.unhealthy else new.unhealthy,
        allocations=old.allocations if new.allocations == old.allocations else new.allocations,
    )


def moment(text: str | None) -> datetime | None:
    """The instant in UTC of an RFC 3339 text; None for no text, and for a malformed one."""
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    if instant.tzinfo is None or instant.year in {MINYEAR, MAXYEAR}:  # no room to change the zone or to add to it
        return None
    return instant.astimezone(UTC)


def _not_ready(status: NodeTopologyStatus) -> str | None:
    for condition in status.conditions:
        if condition.type == MachineConditionType.READY and condition.status == "False":
            said = f"{condition.reason}: {condition.message}" if condition.message else condition.reason
            return f"its agent says {printable(said, SAID)}"
    return None


def _allocations(status: NodeTopologyStatus) -> tuple[ReportedAllocation, ...] | None:
    if status.allocations is None:
        return None
    return tuple(
        # A shared GPU's replica is called `<uuid>::<n>`.
        ReportedAllocation(
            entry.namespace,
            entry.pod,
            entry.pod_uid,
            tuple(device.partition("::")[0] for device in entry.devices),
            tuple(entry.paths),
        )
        for entry in status.allocations
    )


def _unreadable(name: str, error: ValidationError) -> AgentReport:
    return AgentReport(
        name=name,
        generation=0,
        machine=None,
        invalid=first_fault(error),
        unhealthy={},
        not_ready=None,
        heartbeat=None,
        allocations=None,
    )


def first_fault(error: ValidationError, field: str = "") -> str:
    """The first thing that a model refuses, as `field: message`, for example `spec.gpus[0].index: Field required`;
    `field` is where the model stands."""
    fault = error.errors(include_url=False, include_input=False)[0]
    path: tuple[int | str, ...] = fault["loc"]
    message = fault["msg"]
    rule = fault.get("ctx", {}).get("error")
    if isinstance(rule, FieldError):
        path, message = (*path, rule.field), rule.message
    for part in path:
        field += f"[{part}]" if isinstance(part, int) else f".{short(part)}" if field else short(part)
    return f"{field}: {message}" if field else message
