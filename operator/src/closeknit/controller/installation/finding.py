"""What was found of an installation, each in one line: that it is well, or what is not, and what to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from closeknit.api.text.printable import printable
from closeknit.cluster.immutable.heartbeats import STALE_AFTER
from closeknit.kube.api import JsonObject
from closeknit.kube.errors import ApiError, Forbidden
from closeknit.kube.lease import Lease

POLICY = "ValidatingAdmissionPolicy 'closeknit-trainingjob'"
NAMED = 5  # nodes in one line
SAID = 512  # characters of what somebody else says
WATCHED_S = 10.0
"""How long somebody may take to renew the Lease, which he does every 2 s."""
# As an administrator's first job would look. It asks for nothing that a policy refuses.
TRIED: JsonObject = {
    "apiVersion": "closeknit.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "closeknit-test"},
    "spec": {
        "gpus": 8,
        "framework": "PyTorch",
        "parallelism": {"tensor": 8},
        "topology": {"nvlink": "Required"},
        "template": {"spec": {"containers": [{"name": "trainer", "image": "registry.example/train:1"}]}},
    },
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line."""

    is_well: bool
    words: str

    def __str__(self) -> str:
        return f"{'ok    ' if self.is_well else 'NOT OK'}  {self.words}"


def of_kinds(missing: Sequence[str]) -> Finding:
    """Whether the API server serves our kinds; `missing`: the plurals that it does not."""
    if missing:
        words = f"{', '.join(missing)} of closeknit.dev/v1alpha1 not served: apply the CRDs of this version"
        return Finding(False, f"{words} (crds.install=true, or kubectl apply --server-side -f files/crds)")
    return Finding(True, "the kinds of closeknit.dev/v1alpha1 are served")


def of_leader(first: Lease | None, last: Lease | None) -> Finding:
    """Whether an operator decides; `first` and `last`: the Lease as it was, and as it is up to WATCHED_S later."""
    look = "look at the Pods of the Deployment closeknit-operator, and at their logs"
    if last is None or not last.holder:
        return Finding(False, f"no operator decides, for nobody holds the Lease closeknit-operator: {look}")
    holder = printable(last.holder.partition("_")[0], SAID)
    if first is None or first.claim == last.claim:
        words = f"no operator decides, for {holder} has not renewed the Lease closeknit-operator for {WATCHED_S:g} s"
        return Finding(False, f"{words}: {look}")
    return Finding(True, f"the operator {holder} decides")


def of_agents(heartbeats: Sequence[tuple[str, datetime | None]], now: datetime) -> Finding:
    """Whether the machines are measured; (node, heartbeat) of each NodeTopology."""
    if not heartbeats:
        words = "no node has a NodeTopology, so that nothing is placed; agents run where nodes match agent.affinity"
        return Finding(False, f"{words}: look at the DaemonSet closeknit-agent, and at its Pods' Events and logs")
    silent = sorted(name for name, beat in heartbeats if beat is None or now - beat > STALE_AFTER)
    if silent:
        more = f" and {len(silent) - NAMED} more" if len(silent) > NAMED else ""
        minutes = int(STALE_AFTER.total_seconds()) // 60
        words = f"no job goes to {len(silent)} of {len(heartbeats)} nodes, whose agents are silent for {minutes} min"
        names = ", ".join(silent[:NAMED])
        return Finding(False, f"{words} ({names}{more}): look at their Pods")
    return Finding(True, f"agents have measured {len(heartbeats)} nodes, and all give signs of life")


def of_judgement(answer: ApiError | None) -> Finding:
    """Whether TRIED is known to the CRD and judged by the chart's policy; `answer`: what its dry run was refused with.

    Who tries it may create TrainingJobs but no Pods, which is what the policy refuses. It is asked after the schema.
    """
    match answer:
        case Forbidden() if POLICY in answer.message and "create Pods" in answer.message:
            return Finding(True, "a TrainingJob passes the schema, and is judged by the policy closeknit-trainingjob")
        case None:
            words = "a TrainingJob of somebody who may create no Pods is let through: the policy closeknit-trainingjob"
            return Finding(False, f"{words} or its binding is missing; run helm upgrade")
        case _:
            return Finding(False, f"a plain TrainingJob is refused: {printable(answer.message, SAID)}")
