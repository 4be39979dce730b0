"""CEL rules: what a schema cannot say about one object alone, and what may never change.

A rule on an optional field is not evaluated when the field appears or disappears, so rules about change sit at the
root, one per field, with the field named by fieldPath. They also read the status there: until a job is booked, a
mistake in its spec is mended by an edit. Messages are constants: an API server cannot bound the cost of one that is
computed. The models say the same for files that no API server has seen; one table of cases (tests/harness/crd_cases.py)
is held against both.
"""

from dataclasses import dataclass
from typing import Final, Literal

from closeknit.api.clustertopology import (
    EQUAL_LEVELS_MESSAGE,
    EQUAL_NETWORKS_MESSAGE,
    EQUAL_RESOURCES_MESSAGE,
    GPU_RESOURCES,
    GPUS_DECLARED_MESSAGE,
    RESERVED_LEVEL_MESSAGE,
    RESERVED_LEVELS,
)
from closeknit.api.names import MIG_RESOURCE_PREFIX
from closeknit.api.trainingjob import (
    BREAKS_GROUPS_MESSAGE,
    EGRESS_MESSAGE,
    JOB_NAME_MAX_LENGTH,
    JOB_NAME_MESSAGE,
    JOB_NAME_PATTERN,
    LEAST_EGRESS,
    LEAST_STALL,
    LEAST_WINDOW,
    MOST_EGRESS,
    MOST_WINDOW,
    MUTABLE,
    NO_LIMIT_FOR_HANGS_MESSAGE,
    NO_LIMIT_MESSAGE,
    RULES_DISAGREE_MESSAGE,
    STALL_MESSAGE,
    WINDOW_MESSAGE,
    WINDOW_PATTERN,
    TrainingJobSpec,
)

ITEM: Final = "[]"  # in a path: every item of the list


@dataclass(frozen=True, slots=True)
class Rule:
    """One x-kubernetes-validations entry; field_path is relative to where the rule sits and starts with a dot.

    The other reasons that an API server knows (FieldValueRequired, FieldValueDuplicate) make it drop the message.
    """

    rule: str
    message: str
    field_path: str | None = None
    reason: Literal["FieldValueInvalid", "FieldValueForbidden"] = "FieldValueInvalid"

    def entry(self) -> dict[str, str]:
        """The rule as the API server reads it."""
        where = {} if self.field_path is None else {"fieldPath": self.field_path}
        return {"rule": self.rule, **where, "reason": self.reason, "message": self.message}


Rules = dict[tuple[str, ...], tuple[Rule, ...]]  # path in the object -> rules that sit there


def training_job_rules() -> Rules:
    """The rules of TrainingJob: its name, one rule per immutable field, then what the numbers owe each other."""
    return {
        (): (_JOB_NAME, *(_immutable(field) for field in immutable_fields())),
        ("spec",): _NUMBERS,
        ("spec", "restart"): _RESTART,
    }


def cluster_topology_rules() -> Rules:
    """The rules of ClusterTopology: level names are unique, and not those that closeknit adds itself; resources of
    SR-IOV functions and their networks are unique, too, and no resource is one of GPUs."""
    return {
        ("spec", "levels"): (_UNIQUE_LEVELS,),
        ("spec", "levels", ITEM): (_FREE_LEVEL,),
        ("spec", "fabric", "sriovNetworks"): (_UNIQUE_RESOURCES, _UNIQUE_NETWORKS),
        ("spec", "fabric", "sriovNetworks", ITEM): (_FUNCTIONS,),
    }


def immutable_fields() -> tuple[str, ...]:
    """Wire names of the fields of a TrainingJob's spec that its first booking fixes, in the order of the model."""
    names = (field.alias or name for name, field in TrainingJobSpec.model_fields.items())
    return tuple(name for name in names if name not in MUTABLE)


def immutable_message(field: str) -> str:
    """What a user reads who changes an immutable field."""
    return f"{field} is immutable once the job was booked; delete the TrainingJob and create a new one to change it"


def _immutable(field: str) -> Rule:
    required = TrainingJobSpec.model_json_schema()["required"]
    same = f"self.spec.{field} == oldSelf.spec.{field}"
    # CEL does not see a template's spec, but == compares it deeply, except for a key that only one side has while both
    # have equally many: metadata could be swapped for an unknown key without the second half.
    if field == "template":
        same = f"({same} && {_same_presence('template.metadata')})"
    if field == "parameterServers":
        same = f"({same} && {_same_presence('parameterServers.template.metadata')})"
    if field not in required:
        same = f"({_same_presence(field)} && (!has(self.spec.{field}) || {same}))"
    return Rule(f"({_NOT_BOOKED}) || {same}", immutable_message(field), f".spec.{field}", "FieldValueForbidden")


def _same_presence(path: str) -> str:
    return f"has(self.spec.{path}) == has(oldSelf.spec.{path})"


# As TrainingJobStatus.was_booked. A write of the spec cannot change the status: the API server keeps the stored one.
_NOT_BOOKED: Final = "!oldSelf.?status.?placement.hasValue() && oldSelf.?status.?attempts.orValue([]).size() == 0"

_JOB_NAME: Final = Rule(
    f"self.metadata.name.size() <= {JOB_NAME_MAX_LENGTH} && self.metadata.name.matches('{JOB_NAME_PATTERN}')",
    JOB_NAME_MESSAGE,
    ".metadata.name",
)

_DEGREE: Final = {name: f"self.?parallelism.?{name}.orValue(1)" for name in ("tensor", "context", "pipeline", "expert")}
_NUMBERS: Final = (
    Rule(
        f"self.gpus % ({_DEGREE['tensor']} * {_DEGREE['context']} * {_DEGREE['pipeline']}) == 0",
        "tensor x context x pipeline must divide gpus",
        ".parallelism",
    ),
    Rule(
        f"(self.gpus / ({_DEGREE['tensor']} * {_DEGREE['pipeline']})) % {_DEGREE['expert']} == 0",
        "expert must divide context x data: gpus / (tensor x pipeline)",
        ".parallelism.expert",
    ),
    Rule(
        "!has(self.elastic) || self.elastic.minGPUs <= self.gpus",
        "elastic.minGPUs must not exceed gpus",
        ".elastic.minGPUs",
    ),
    Rule(
        "!has(self.elastic) || ("
        f"self.elastic.minGPUs % ({_DEGREE['tensor']} * {_DEGREE['context']} * {_DEGREE['pipeline']}) == 0 && "
        f"(self.elastic.minGPUs / ({_DEGREE['tensor']} * {_DEGREE['pipeline']})) % {_DEGREE['expert']} == 0 && "
        "self.elastic.minGPUs % self.?topology.?gpusPerNode.orValue(1) == 0)",
        BREAKS_GROUPS_MESSAGE,
        ".elastic.minGPUs",
    ),
    Rule(
        "!has(self.topology) || !has(self.topology.gpusPerNode) || self.gpus % self.topology.gpusPerNode == 0",
        "topology.gpusPerNode must divide gpus",
        ".topology.gpusPerNode",
    ),
    Rule(
        f"!has(self.network) || !has(self.network.egressBandwidth) || ("
        f"quantity(self.network.egressBandwidth).compareTo(quantity('{LEAST_EGRESS}')) >= 0 && "
        f"quantity(self.network.egressBandwidth).compareTo(quantity('{MOST_EGRESS}')) <= 0)",
        EGRESS_MESSAGE,
        ".network.egressBandwidth",
    ),
    Rule("self.?gpu.?mig.orValue('') == '' || self.gpus == 1", "gpu.mig needs gpus: 1", ".gpu.mig"),
)

_RESTART: Final = (
    Rule(
        f"!has(self.window) || (self.window.matches('{WINDOW_PATTERN}') && "
        f"duration(self.window) >= duration('{LEAST_WINDOW}') && duration(self.window) <= duration('{MOST_WINDOW}'))",
        WINDOW_MESSAGE,
        ".window",
    ),
    Rule(
        f"!has(self.stallDeadline) || (self.stallDeadline.matches('{WINDOW_PATTERN}') && "
        f"duration(self.stallDeadline) >= duration('{LEAST_STALL}') && "
        f"duration(self.stallDeadline) <= duration('{MOST_WINDOW}'))",
        STALL_MESSAGE,
        ".stallDeadline",
    ),
    Rule(
        "!has(self.rules) || self.rules.all(one, self.rules.all(other, one.action == other.action || "
        "!one.exitCodes.exists(code, code in other.exitCodes)))",
        RULES_DISAGREE_MESSAGE,
        ".rules",
    ),
    Rule(
        "(has(self.limit) && self.limit > 0) || !has(self.rules) || !self.rules.exists(one, one.action == 'Restart')",
        NO_LIMIT_MESSAGE,
        ".limit",
    ),
    Rule(
        "(has(self.limit) && self.limit > 0) || !has(self.onHang) || self.onHang != 'Restart'",
        NO_LIMIT_FOR_HANGS_MESSAGE,
        ".limit",
    ),
)

_UNIQUE_LEVELS: Final = Rule(
    "self.all(level, self.exists_one(other, other.name == level.name))",
    EQUAL_LEVELS_MESSAGE,
)
_UNIQUE_RESOURCES: Final = Rule(
    "self.all(one, self.exists_one(other, other.resource == one.resource))",
    EQUAL_RESOURCES_MESSAGE,
)
_UNIQUE_NETWORKS: Final = Rule(
    "self.all(one, self.exists_one(other, other.network == one.network))",
    EQUAL_NETWORKS_MESSAGE,
)
_FUNCTIONS: Final = Rule(
    f"!(self.resource in {list(GPU_RESOURCES)}) && !self.resource.startsWith('{MIG_RESOURCE_PREFIX}')",
    GPUS_DECLARED_MESSAGE,
    ".resource",
)
_FREE_LEVEL: Final = Rule(
    f"!(self.name in {list(RESERVED_LEVELS)})",  # a Python list of words is a CEL list, too
    RESERVED_LEVEL_MESSAGE,
    ".name",
)
