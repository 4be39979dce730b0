"""Pods on dead nodes are deleted by force where the administrator wants that, and no others, on a real control plane.

A finalizer stands for a kubelet that confirms nothing. By force is a grace period of 0.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import ClassVar

import pytest

from closeknit.lifecycle.status.conditions import timestamp
from harness.operator_bed import Bed, standing

DEAD, UNWELL, WELL = HURT = ("gpu-1", "gpu-2", "gpu-3")
HEARD = ("gpu-4", "gpu-5", "gpu-6", "gpu-7")  # where none is, the control plane does not hear them
LEASES = "kube-node-lease"
STRANGER = "stranger"


class ForcingBed(Bed):
    """A control plane with seven nodes, and an operator that may delete by force."""

    options: ClassVar[tuple[str, ...]] = ("--force-delete-pods",)

    def silence(self, node: str, ready: str) -> None:
        """Its kubelet renews its Lease no more, and this is its condition Ready."""
        spec = {
            "holderIdentity": "nobody",
            "leaseDurationSeconds": 864_000_000,
            "renewTime": "2026-11-25T10:00:00.000000Z",
        }
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": node, "namespace": LEASES},
        }
        self.cluster.apply({**lease, "spec": spec})
        self.cluster.kubectl("annotate", "node", node, "kwok.x-k8s.io/node-")
        self.say(node, ready)

    def say(self, node: str, ready: str) -> None:
        """Its condition Ready of now: as long as it is told, Kubernetes hears the kubelet."""
        told = {"reason": "SaidByTheTest", "lastHeartbeatTime": timestamp(datetime.now(UTC))}
        patch = json.dumps({"status": {"conditions": [{"type": "Ready", "status": ready, **told}]}})
        self.cluster.kubectl("patch", "node", node, "--subresource=status", "--type=strategic", f"--patch={patch}")

    def is_forced(self, pod: str, **ready: str) -> bool:
        """Whether a Pod was deleted by force, while nodes say this of themselves."""
        for node, status in ready.items():
            self.say(node, status)
        return self.grace(pod) == 0

    def hold(self, pod: str) -> None:
        """Its kubelet never says that it is gone."""
        self.change("pod", pod, {"metadata": {"finalizers": ["test.example/kubelet"]}})

    def grace(self, pod: str) -> int | None:
        """The grace period with which a Pod is deleted, 0 by force; None of one that is not."""
        found = self.cluster.get("pod", pod, self.namespace)["metadata"]
        return int(found["deletionGracePeriodSeconds"]) if "deletionTimestamp" in found else None


@pytest.fixture(scope="module")
def bed() -> Iterator[ForcingBed]:
    with standing(ForcingBed, (*HURT, *HEARD), ()) as found:
        yield found


@pytest.mark.long
def test_only_pods_of_jobs_on_nodes_that_kubernetes_has_not_heard_either_go_by_force(bed: ForcingBed) -> None:
    bed.begin("forced")
    trainer = {"name": "trainer", "image": "registry.example/train:1"}
    for node in HURT:
        template = {
            "containers": [trainer],
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
        }
        bed.submit(f"on-{node}", gpus=8, template={"spec": template})
        bed.wait_for_state("Running", f"on-{node}")
    own = {node: f"on-{node}-a1-worker-00000" for node in HURT}
    spec = {"nodeName": DEAD, "containers": [{"name": "c", "image": "i"}], "tolerations": [{"operator": "Exists"}]}
    metadata = {"name": STRANGER, "namespace": bed.namespace}
    bed.cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "terminationGracePeriodSeconds": 1}}
    )
    bed.cluster.wait_for(lambda: STRANGER in bed.names("pods"), "the stranger")
    for pod in (STRANGER, *own.values()):
        bed.hold(pod)
    for node, ready in ((DEAD, "Unknown"), (UNWELL, "False"), (WELL, "True")):
        bed.silence(node, ready)
    for pod in (STRANGER, own[WELL]):
        bed.cluster.kubectl("delete", "pod", pod, f"--namespace={bed.namespace}", "--wait=false")

    said = {UNWELL: "False", WELL: "True"}
    bed.cluster.wait_for(lambda: bed.is_forced(own[DEAD], **said), "the Pod on the dead node to be forced", 180)
    assert [bed.grace(pod) for pod in (STRANGER, own[UNWELL], own[WELL])] == [1, 1, 1]
    # From now on Kubernetes does not hear the second node, either.
    bed.cluster.wait_for(lambda: bed.is_forced(own[UNWELL], **{WELL: "True"}), "its Pod to be forced now", 180)
    assert [bed.grace(pod) for pod in (STRANGER, own[WELL])] == [1, 1]
    forced = [
        each.name for each in bed.writes() if each.verb == "delete" and (each.body or {}).get("gracePeriodSeconds") == 0
    ]
    assert forced == [own[DEAD], own[UNWELL]]
