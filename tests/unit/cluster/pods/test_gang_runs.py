"""What the sidecars of a gang tell in the statuses of their Pods."""

from typing import Any

import pytest

from closeknit.api.names import BARRIER_CONTAINER, SIDECAR_CONTAINER
from closeknit.cluster.pods.gang_runs import GangLink, gang_link, is_unready_by_sidecar, tellers
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.store.watched_kinds import from_document

UNREADY = "containers with unready status: "


def pod(
    index: int, state: dict[str, Any] | None = None, *, ready: bool = False, unready: str = "", waits: bool = False
) -> Pod:
    """A Pod of a gang as the API server has it; without a state it has no sidecar."""
    statuses = [] if state is None else [{"name": SIDECAR_CONTAINER, "state": state, "ready": ready}]
    condition = {"type": "Ready", "status": "False", "message": f"{UNREADY}{unready}"}
    made = from_document(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"train-a1-worker-0000{index}",
                "namespace": "team-b",
                "uid": f"u{index}",
                "labels": {"closeknit.dev/job": "train"},
                "ownerReferences": [
                    {"apiVersion": "closeknit.dev/v1alpha1", "kind": "TrainingJob", "name": "train", "uid": "j"}
                ],
            },
            "status": {
                "phase": "Pending" if waits else "Running",
                "initContainerStatuses": [{"name": BARRIER_CONTAINER, "state": {"running": {}}}] if waits else [],
                "containerStatuses": statuses,
                "conditions": [condition],
            },
        }
    )
    assert isinstance(made, Pod)
    return made


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([pod(1, {"running": {}}), pod(0, {"running": {}}, ready=True)], GangLink.WHOLE, id="heard"),
        pytest.param([pod(1, {"running": {}}, ready=True), pod(0, {"running": {}})], GangLink.BROKEN, id="not heard"),
        pytest.param([pod(0, {"waiting": {}}, ready=True)], GangLink.UNKNOWN, id="not running"),
        pytest.param([pod(0)], GangLink.UNKNOWN, id="no sidecar"),
        pytest.param([pod(0, {"waiting": {}}, waits=True)], GangLink.WAITING, id="at its barrier"),
        pytest.param([pod(9, {"running": {}}, ready=True)], GangLink.WHOLE, id="only the last is there"),
        pytest.param([pod(4, {"running": {}}, ready=True)], GangLink.UNKNOWN, id="one that does not tell"),
        pytest.param([pod(0, {"waiting": {}}), pod(1, {"running": {}})], GangLink.BROKEN, id="the second tells"),
        pytest.param([], GangLink.UNKNOWN, id="no Pods"),
    ],
)
def test_a_few_tell_whether_the_gang_is_whole(pods: list[Pod], expected: GangLink) -> None:
    assert gang_link(pods, 10, lambda _: True) is expected
    assert gang_link(pods, 10, lambda _: False) is GangLink.UNKNOWN


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (1, (0,)),
        (2, (0, 1)),
        (8, (0, 1, 2, 3, 4, 5, 6, 7)),
        (9, (0, 1, 2, 3, 4, 5, 6, 8)),
        (10, (0, 1, 2, 3, 5, 6, 7, 9)),
        (512, (0, 73, 146, 219, 292, 365, 438, 511)),
    ],
)
def test_the_same_few_of_each_gang_tell(workers: int, expected: tuple[int, ...]) -> None:
    assert tellers(workers) == expected


def test_a_pod_that_lacks_only_the_others_is_not_called_unready() -> None:
    assert is_unready_by_sidecar(pod(0, unready=f"[{SIDECAR_CONTAINER}]"))
    assert not is_unready_by_sidecar(pod(0, unready=f"[trainer {SIDECAR_CONTAINER}]"))
    assert not is_unready_by_sidecar(pod(0, unready="[trainer]"))
