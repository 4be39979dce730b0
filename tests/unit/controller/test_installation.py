"""What `helm test` says of an installation."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from closeknit.controller.installation.finding import Finding, of_agents, of_judgement, of_kinds, of_leader
from closeknit.kube.errors import Forbidden, Invalid
from closeknit.kube.lease import Lease, lease

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
REFUSED = (
    "trainingjobs.closeknit.dev is forbidden: ValidatingAdmissionPolicy 'closeknit-trainingjob' with binding "
    "'closeknit-trainingjob' denied request: to create a TrainingJob you need the right to create Pods"
)


def held(holder: str, renewed: str) -> Lease:
    spec: dict[str, Any] = {"holderIdentity": holder, "renewTime": renewed}
    return lease({"metadata": {}, "spec": spec})


def beats(**minutes: float | None) -> list[tuple[str, datetime | None]]:
    """Node -> minutes since its heartbeat."""
    return [(node, None if ago is None else NOW - timedelta(minutes=ago)) for node, ago in minutes.items()]


@pytest.mark.parametrize(
    "finding",
    [
        of_kinds([]),
        of_leader(held("pod-1_x", "1"), held("pod-1_x", "2")),
        of_leader(held("pod-1_x", "1"), held("pod-2_y", "1")),
        of_agents(beats(a=1, b=14, c=-1), NOW),
        of_judgement(Forbidden(REFUSED)),
    ],
)
def test_what_is_well(finding: Finding) -> None:
    assert finding.is_well
    assert str(finding).startswith("ok      ")


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (of_kinds(["trainingjobs"]), "trainingjobs of closeknit.dev/v1alpha1 not served: apply the CRDs"),
        (of_leader(None, None), "nobody holds the Lease"),
        (of_leader(held("", "1"), held("", "2")), "nobody holds the Lease"),
        (of_leader(held("pod-1_x", "1"), held("pod-1_x", "1")), "for pod-1 has not renewed the Lease"),
        (of_leader(None, held("pod-1_x", "1")), "for pod-1 has not renewed the Lease"),
        (of_leader(None, held("a\x1b[31m\n_x", "1")), r"for a\x1b[31m\n has not"),
        (of_agents([], NOW), "no node has a NodeTopology, so that nothing is placed"),
        (of_agents(beats(a=1, b=16, c=None), NOW), "to 2 of 3 nodes, whose agents are silent for 15 min (b, c)"),
        (of_agents(beats(**{f"n{i}": None for i in range(7)}), NOW), "(n0, n1, n2, n3, n4 and 2 more)"),
        (of_judgement(None), "is let through: the policy closeknit-trainingjob or its binding is missing"),
        (of_judgement(Invalid("spec.gpus: is odd")), "a plain TrainingJob is refused: spec.gpus: is odd"),
        (of_judgement(Forbidden("edith cannot create resource")), "is refused: edith cannot create resource"),
        (
            of_judgement(Forbidden(REFUSED.replace("you need the right to create Pods", "leave it out"))),
            "a plain TrainingJob is refused",
        ),
    ],
)
def test_what_is_not(finding: Finding, words: str) -> None:
    assert not finding.is_well
    assert words in str(finding)
    assert str(finding).startswith("NOT OK  ")
