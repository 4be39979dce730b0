"""What the agent wants to be written about its node. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from closeknit.agent.discovery.health.machine_health import MachineFinding
from closeknit.agent.discovery.topology import Discovery
from closeknit.agent.discovery.usage import traffic_paths
from closeknit.api.names import NodeLabel
from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.api.nodetopology_status import Allocation, NodeTopologyStatus, TrafficPath
from closeknit.api.reasons import MachineConditionType, ReadyReason
from closeknit.api.wire import Condition
from closeknit.machine.checks import InvalidTopology
from closeknit.machine.published_labels import node_labels


@dataclass(frozen=True, slots=True)
class Publication:
    """Labels of the Node, and its NodeTopology; the status has no heartbeat, which only a write gives it."""

    labels: dict[str, str]
    spec: NodeTopologySpec
    status: NodeTopologyStatus


def publication(
    found: Discovery,
    before: NodeTopologyStatus,
    generation: int | None,
    agent_version: str | None,
    now: str,
    spec: NodeTopologySpec | None = None,
) -> Publication:
    """What to publish of a discovery, given the status and the spec that are there.

    Where no GPU could be read, the spec that is there stays: condition Ready says that it is unconfirmed. A
    condition keeps the time of its last transition as long as its status stays. `generation` is that of the
    NodeTopology; it and `spec` are absent before it exists.
    """
    if spec is None or not found.is_blind:
        spec = found.spec
    unread = before if found.is_blind else NodeTopologyStatus()  # what no reading can tell now stays as it was
    status = NodeTopologyStatus(
        agent_version=agent_version,
        driver_load=found.driver_load or unread.driver_load,
        gpus=list(found.gpus) or unread.gpus,
        nics=list(found.nics),
        links_down=list(found.links_down),
        allocations=None if found.allocations is None else _with_paths(found.allocations, before.allocations or ()),
    )
    findings = found.findings
    try:
        labels = node_labels(spec, status)
    except InvalidTopology as error:
        # Only a dump that was edited gets here. The operator leaves such a node out; say why where people look first.
        invalid = MachineFinding(MachineConditionType.READY, "False", ReadyReason.INVALID_TOPOLOGY, str(error))
        findings = (invalid, *findings[1:])
        labels = {}
    if found.is_blind or not labels:
        labels |= {NodeLabel.HEALTH.value: "degraded"}
    conditions = _conditions(findings, before.conditions, generation, now)
    return Publication(labels, spec, status.model_copy(update={"conditions": conditions}))


def _with_paths(held: Sequence[Allocation], before: Sequence[Allocation]) -> list[Allocation]:
    """These allocations with the ways that were seen before, too: a restarted agent has seen none of them."""
    seen = {traffic_paths.key(each): set(each.paths) for each in before}
    return [
        each.model_copy(update={"paths": [path for path in TrafficPath if path in known | {*each.paths}]})
        for each in held
        for known in [seen.get(traffic_paths.key(each), set())]
    ]


def _conditions(
    findings: Sequence[MachineFinding], before: Sequence[Condition], generation: int | None, now: str
) -> list[Condition]:
    known = {condition.type: condition for condition in before}
    conditions = []
    for finding in findings:
        old = known.get(finding.type)
        same = old is not None and old.status == finding.status
        conditions.append(
            Condition(
                type=finding.type.value,
                status=finding.status,
                reason=finding.reason,
                message=finding.message,
                last_transition_time=old.last_transition_time if old is not None and same else now,
                observed_generation=generation,
            )
        )
    return conditions
