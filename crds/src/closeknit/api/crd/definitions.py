"""The three CustomResourceDefinitions as objects."""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from closeknit.api.crd.rules import ITEM, Rules, cluster_topology_rules, training_job_rules
from closeknit.api.crd.schema import Schema, structural_schema
from closeknit.api.names import CLUSTER_TOPOLOGY, GROUP, NODE_TOPOLOGY, NOT_SEEN, TRAINING_JOB, VERSION
from closeknit.api.objects import ClusterTopology, NodeTopology, TrainingJob
from closeknit.api.trainingjob_status import State
from closeknit.api.wire import Wire


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`. It prints the first result of its path only; it can neither derive nor count."""

    name: str
    path: str
    type: Literal["string", "integer", "number", "boolean", "date"]
    description: str
    wide: bool = False  # only with -o wide

    def entry(self) -> dict[str, Any]:
        """The column as the API server reads it."""
        entry = {"name": self.name, "type": self.type, "jsonPath": self.path, "description": self.description}
        return entry | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True, slots=True)
class OurKind:
    """One of our kinds: its names, its model, and what the model alone does not say."""

    kind: str
    plural: str
    short_name: str
    scope: Literal["Namespaced", "Cluster"]
    model: type[Wire]
    columns: tuple[Column, ...]
    rules: Rules = field(default_factory=dict)
    unseen: dict[str, str] | None = None
    """What an API server shows as the status of an object while none is written; it stores nothing of that."""


# With a CustomResourceDefinition go all its objects, and so all jobs. Helm keeps it by the first, and so does Argo CD
# where an Application is deleted. Where one leaves it out, Argo CD goes by the second, and Flux by the third.
_KEPT = {
    "helm.sh/resource-policy": "keep",
    "argocd.argoproj.io/sync-options": "Prune=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}


def _condition(type_: str, part: str) -> str:
    return f".status.conditions[?(@.type=='{type_}')].{part}"


# Without it a cluster whose operator does not run shows jobs without any word.
UNSEEN_JOB: Final = {
    "state": State.QUEUED.value,
    "reason": NOT_SEEN,
    "message": "closeknit's operator has not looked at this job; where that lasts longer than some seconds it does not "
    "run, or cannot read: have an administrator look at the Deployment closeknit-operator and its log",
}
_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date", "Time since it was created.")

KINDS: Final = (
    OurKind(
        kind=TRAINING_JOB,
        plural="trainingjobs",
        short_name="tj",
        scope="Namespaced",
        model=TrainingJob,
        rules=training_job_rules(),
        unseen=UNSEEN_JOB,
        columns=(
            Column("Status", ".status.state", "string", "One word derived from the conditions."),
            Column("GPUs", ".spec.gpus", "integer", "World size."),
            Column("Nodes", ".status.placement.nodeCount", "integer", "Nodes that the job holds GPUs of."),
            Column(
                "Bandwidth",
                ".status.placement.predictedBusBandwidthGBps",
                "number",
                "Predicted bus bandwidth of an all-reduce, in GB/s.",
            ),
            Column("Restarts", ".status.restarts", "integer", "Times that it started again."),
            Column("Reason", ".status.reason", "string", "What is wrong or waited for; empty where all is well."),
            _AGE,
            Column(
                "Runs-With",
                ".status.placement.gpus",
                "integer",
                "World size of an elastic job that holds fewer GPUs; empty where it holds all.",
                wide=True,
            ),
            Column("Queue", ".spec.queue", "string", "Queue of the job.", wide=True),
            Column("Levels", ".status.placement.levels", "string", "Domains spanned at each level.", wide=True),
            Column(
                "Estimated-Start",
                ".status.pending.estimatedStart",
                "string",
                "When a job that waits is expected to start; empty where nothing says so.",
                wide=True,
            ),
            Column("Message", ".status.message", "string", "The reason in words.", wide=True),
        ),
    ),
    OurKind(
        kind=NODE_TOPOLOGY,
        plural="nodetopologies",
        short_name="nt",
        scope="Cluster",
        model=NodeTopology,
        columns=(
            Column("Product", ".spec.gpus[0].product", "string", "Product of the first GPU."),
            Column("NVSwitch", ".spec.nvlink.switched", "boolean", "Whether the NVLinks end in NVSwitches."),
            Column(
                "Ready",
                _condition("Ready", "status"),
                "string",
                "Whether the agent found the node fit when it last gave a sign of life.",
            ),
            Column("Heartbeat", ".status.heartbeatTime", "date", "Time since the agent's last sign of life."),
            _AGE,
            Column("Lemon", ".status.lemon.since", "date", "Time since it is a lemon: jobs are placed there last."),
            Column("Method", ".spec.source.method", "string", "How the machine was read.", wide=True),
            Column("Driver", ".spec.source.driverVersion", "string", "Version of NVIDIA's driver.", wide=True),
            Column("Agent", ".status.agentVersion", "string", "Version of the agent.", wide=True),
        ),
    ),
    OurKind(
        kind=CLUSTER_TOPOLOGY,
        plural="clustertopologies",
        short_name="ct",
        scope="Cluster",
        model=ClusterTopology,
        rules=cluster_topology_rules(),
        columns=(
            Column("Outermost", ".spec.levels[0].name", "string", "The outermost level."),
            Column("Innermost", ".spec.levels[-1:].name", "string", "The innermost level but host."),
            Column("Rail-Isolated", ".spec.fabric.railIsolated", "boolean", "Whether rails are joined nowhere."),
            Column("Ready", _condition("Ready", "status"), "string", "False where something of it does nothing."),
            Column(
                "Agents-Report",
                _condition("AgentsReport", "status"),
                "string",
                "Whether the agents of all nodes give signs of life.",
            ),
            _AGE,
            Column("Message", _condition("Ready", "message"), "string", "What was found, or is wrong.", wide=True),
        ),
    ),
)


def custom_resource_definitions() -> dict[str, dict[str, Any]]:
    """File name -> CustomResourceDefinition, for every kind."""
    return {f"{kind.plural}.yaml": _definition(kind) for kind in KINDS}


def _definition(kind: OurKind) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{GROUP}",
            "annotations": _KEPT,  # the chart installs it as a template, so that upgrades reach it
        },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": [kind.short_name],
                "categories": ["closeknit"],
            },
            "scope": kind.scope,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [column.entry() for column in kind.columns],
                    "schema": {"openAPIV3Schema": _schema(kind)},
                }
            ],
        },
    }


def _schema(kind: OurKind) -> Schema:
    """The schema of the whole object. What apiVersion, kind and metadata hold is the API server's own matter."""
    schema: Schema = {
        "description": " ".join(str(kind.model.__doc__).split()),
        "type": "object",
        "required": [name for name in ("spec", "status") if kind.model.model_fields[name].is_required()],
        "properties": {
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},  # a fieldPath must be declared
            "spec": structural_schema(_part(kind.model, "spec")),
            "status": structural_schema(_part(kind.model, "status")),
        },
    }
    if kind.unseen is not None:
        schema["properties"]["status"]["default"] = kind.unseen
    if not schema["required"]:
        del schema["required"]
    for path, rules in kind.rules.items():
        _at(schema, path)["x-kubernetes-validations"] = [rule.entry() for rule in rules]
    return schema


def _part(model: type[Wire], name: str) -> type[Wire]:
    annotation = model.model_fields[name].annotation
    if not (isinstance(annotation, type) and issubclass(annotation, Wire)):
        raise TypeError(f"{model.__name__}.{name} is no Wire model")
    return annotation


def _at(schema: Schema, path: tuple[str, ...]) -> Schema:
    for step in path:
        schema = schema["items"] if step == ITEM else schema["properties"][step]
    return schema
