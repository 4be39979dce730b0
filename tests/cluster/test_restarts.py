"""Gangs that start again, jobs that end at their deadline, and jobs that go in time, on a real control plane."""

from typing import Any

from harness.chart import NAMESPACE, wait_for_policies
from harness.install import OPERATOR
from harness.kubectl import KubectlError
from harness.operator_bed import BOTH, ON_PLUGIN, PLUGIN_NODES, Bed

FAIL_ON_1 = [{"exitCodes": [1], "action": "Fail"}]  # kwok's exit code of a Pod that fails


def is_gone(bed: Bed) -> bool:
    return "train" not in bed.names("trainingjobs")


def ends(status: dict[str, Any]) -> list[tuple[int, str, bool]]:
    return [(each["number"], each["reason"], each["charged"]) for each in status["attempts"]]


@BOTH
def test_a_gang_starts_again_as_often_as_its_limit_says_and_then_goes(
    bed: Bed, spec: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    bed.submit(**spec, restart={"limit": 1, "window": "1h"})
    bed.wait_for_state("Running")
    bed.finish("train-a1-worker-00001", "fail")
    bed.cluster.wait_for(lambda: bed.job()["status"].get("attempt") == 2, "the next attempt")
    status = bed.wait_for_state("Running")
    assert (ends(status), status["restarts"]) == ([(1, "PodFailed", True)], 1)
    assert [each["name"] for each in status["placement"]["nodes"]] == [*nodes]
    assert bed.nodes_of_pods() == [*nodes]
    (ended,) = status["attempts"]
    assert [(each["pod"], each["exitCode"]) for each in ended["exits"]] == [("train-a1-worker-00001", 1)]
    assert set(ended["phases"]) == {"detect", "decide", "free", "bind", "start"}
    assert len(status["charges"]) == 1
    assert set(status["cost"]["lostGPUSeconds"]) == {"PodFailed", "Starting"}
    bed.wait_for_told("Placed", "PodFailed", "Restarted")
    assert bed.metric("closeknit_job_restarts_total", reason="PodFailed", in_place="false") >= 1
    assert bed.metric("closeknit_restart_phase_seconds_count", phase="start") >= 1
    bed.finish("train-a2-worker-00000", "fail")
    status = bed.wait_for_state("Failed")
    assert (status["reason"], status["restarts"]) == ("RestartLimitExceeded", 1)
    bed.cluster.wait_for(lambda: not bed.live_pods(), "its Pods to be over")
    bed.change("trainingjob", "train", {"spec": {"ttlSecondsAfterFinished": 1}})
    bed.cluster.wait_for(lambda: is_gone(bed), "the job to be deleted")


def test_a_rule_ends_a_job_that_has_restarts_left(bed: Bed) -> None:
    bed.submit(**ON_PLUGIN, restart={"limit": 5, "rules": FAIL_ON_1})
    bed.wait_for_state("Running")
    bed.finish("train-a1-worker-00000", "fail")
    status = bed.wait_for_state("Failed")
    assert ends(status) == [(1, "PodFailed", True)]
    assert status["message"].endswith("; restart.rules says Fail for exit code 1")


def test_a_job_that_is_not_over_at_its_deadline_fails(bed: Bed) -> None:
    bed.submit(**ON_PLUGIN, activeDeadlineSeconds=2)
    status = bed.wait_for_state("Failed")
    assert ends(status) == [(1, "DeadlineExceeded", False)]
    bed.cluster.wait_for(lambda: not bed.live_pods(), "its Pods to be over")


def test_the_operator_deletes_no_job_that_is_not_over_or_does_not_say_so(bed: Bed) -> None:
    wait_for_policies(bed.cluster, PLUGIN_NODES[0])
    token = bed.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)
    for name, spec in (("waits", {"ttlSecondsAfterFinished": 1}), ("stays", {})):
        bed.submit(name, gpus=64, **spec)
        try:
            bed.cluster.kubectl("delete", "trainingjob", name, f"--namespace={bed.namespace}", kubeconfig=token)
        except KubectlError as error:
            said = error.stderr
        assert said.strip().endswith(
            "the operator deletes a TrainingJob only once it is over, and if its ttlSecondsAfterFinished says so"
        )
