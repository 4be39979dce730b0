"""Room that is kept for a large job, on the real control plane: a short job passes, a long one does not."""

from datetime import UTC, datetime, timedelta

from closeknit.lifecycle.status.conditions import moment
from harness.operator_bed import ON_PLUGIN, Bed

ONE = {**ON_PLUGIN, "gpus": 8}


def test_a_short_job_passes_one_that_waits_and_a_long_one_does_not(bed: Bed) -> None:
    bed.submit("runs", **ONE, expectedDuration="2h")
    bed.wait_for_state("Running", "runs")
    booked_at = datetime.now(UTC)
    bed.submit("large", **ON_PLUGIN)
    told = bed.wait_for_reason("InsufficientGPUs", "large")
    assert "runs will have ended as declared" in told["message"]
    said = moment(told["estimatedStart"])
    assert abs(said - booked_at - timedelta(hours=2)) < timedelta(minutes=2)
    wide = bed.cluster.kubectl("get", "trainingjob", "large", f"--namespace={bed.namespace}", "--output=wide")
    assert told["estimatedStart"] in wide

    bed.submit("long", **ONE, expectedDuration="3h")
    assert (
        f"it fits, and would delay {bed.namespace}/large" in bed.wait_for_reason("BehindReservation", "long")["message"]
    )
    bed.submit("short", **ONE, expectedDuration="10m")
    bed.wait_for_state("Running", "short")
    for pod in bed.live_pods():
        bed.finish(pod, "succeed")
    bed.wait_for_state("Running", "large")
    assert bed.job("long")["status"]["reason"] == "InsufficientGPUs"
