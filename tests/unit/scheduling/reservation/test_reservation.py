"""Room that is kept for the first job that waits, and who passes it, as stories."""

from datetime import UTC, datetime
from typing import Any

import pytest

from closeknit.api.trainingjob_status import Pending
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.lifecycle.writes.resource_quotas import Quota
from closeknit.scheduling.decision import Decision
from closeknit.scheduling.memo.memory import Memory
from scenarios.manifests import cluster_topology, priority_class, training_job, worker
from scenarios.story import Story, dra_node, plugin_node

BOTH = {"gpus": 16, "topology": {"gpusPerNode": 8}}


def submit(story: Story, name: str, **spec: Any) -> None:
    """Somebody makes a job now, and what follows is written."""
    job = training_job(name, spec=spec)
    job["metadata"]["creationTimestamp"] = timestamp(story.now)
    story.add(job)
    story.settle()
    story.pass_time(1)


def pending(story: Story, name: str) -> Pending:
    """Why a job waits."""
    found = story.status(name).pending
    assert found is not None, f"{name} does not wait"
    return found


def runs(story: Story, name: str) -> bool:
    return story.status(name).placement is not None


@pytest.fixture
def story() -> Story:
    """A job that runs for an hour holds one of two nodes, and one for both waits since 10:00:01."""
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"))
    submit(story, "runs", gpus=8, expectedDuration="1h")
    story.run_all()
    submit(story, "both", **BOTH)
    return story


def test_the_first_that_waits_is_told_when(story: Story) -> None:
    told = pending(story, "both")
    assert told.reason == "InsufficientGPUs"
    assert told.estimated_start == "2026-11-21T11:00:00Z"
    assert (
        "about 2026-11-21 11:00 UTC it is expected to start on gpu-1, gpu-2, which are kept for it: then team-b/runs "
        "will have ended as declared"
    ) in told.message


@pytest.mark.parametrize(
    ("declared", "passes"), [("30m", True), ("59m", True), ("1h", False), ("3h", False), (None, False)]
)
def test_whoever_ends_before_passes(story: Story, declared: str | None, *, passes: bool) -> None:
    submit(story, "late", gpus=8, **({} if declared is None else {"expectedDuration": declared}))
    assert runs(story, "late") is passes
    assert pending(story, "both").estimated_start == "2026-11-21T11:00:00Z"
    if not passes:
        told = pending(story, "late")
        assert told.reason == "BehindReservation"
        assert told.message.startswith("it fits, and would delay team-b/both, for which these GPUs are kept")
        assert "spec.expectedDuration" in told.message
        assert told.estimated_start is None


def test_a_deadline_is_as_good_as_a_declaration(story: Story) -> None:
    submit(story, "late", gpus=8, activeDeadlineSeconds=1800)
    assert runs(story, "late")


@pytest.mark.parametrize("declared", [{}, {"expectedDuration": "20h"}], ids=["silent", "longer than the deadline"])
def test_nobody_passes_at_the_moment_of_a_deadline(declared: dict[str, str]) -> None:
    """The job is over once that is stored, and holds its GPUs in the decision before."""
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"))
    submit(story, "runs", gpus=8, activeDeadlineSeconds=3600, **declared)
    story.run_all()
    submit(story, "both", **BOTH)
    submit(story, "late", gpus=8, expectedDuration="10h")
    story.pass_time((datetime(2026, 11, 21, 11, tzinfo=UTC) - story.now).total_seconds())
    story.settle()
    assert story.status("runs").state == "Failed"
    assert runs(story, "both")
    assert not runs(story, "late")


def patient(patience: str = "1h") -> Story:
    """A job that prefers one rack, and gets room in two before its patience is over."""
    racks = {"gpu-1": "r1", "gpu-2": "r1", "gpu-3": "r2"}
    machines = [plugin_node(name) for name in racks]
    for (machine, _), rack in zip(machines, racks.values(), strict=True):
        machine["metadata"].setdefault("labels", {})["net.example/rack"] = rack
    story = Story(cluster_topology("rack"), *(each for several in machines for each in several))
    submit(story, "soon", gpus=8, expectedDuration="5m")
    submit(story, "late", gpus=8, expectedDuration="100h")
    story.run_all()
    asked = {"gpusPerNode": 8, "fabric": {"preferred": "rack", "patience": patience}}
    submit(story, "both", gpus=16, expectedDuration="1h", topology=asked)
    return story


def come_free(story: Story) -> Story:
    """The room in two racks is there."""
    story.pass_time(240)
    story.change_pod("soon-a1-worker-00000", phase="Succeeded")
    story.settle()
    return story


def test_a_job_that_will_be_patient_in_its_room_is_told_so_at_once() -> None:
    told = pending(patient(), "both")
    assert (told.reason, told.estimated_start) == ("InsufficientGPUs", "2026-11-21T11:01:00Z")
    assert pending(patient("3m"), "both").estimated_start == "2026-11-21T10:05:00Z"


def test_room_that_has_come_free_for_a_patient_job_is_kept_until_its_patience_is_over() -> None:
    story = come_free(patient())
    told = pending(story, "both")
    assert (told.reason, told.estimated_start) == ("WaitingForPreferred", "2026-11-21T11:01:00Z")
    assert "it waits until 2026-11-21T11:00:02Z at the latest" in told.message
    assert "about 2026-11-21 11:01 UTC it is expected to start on gpu-2, gpu-3, which are kept for it" in told.message
    submit(story, "long", gpus=8, expectedDuration="3h")
    submit(story, "short", gpus=8, expectedDuration="30m")
    assert pending(story, "long").reason == "BehindReservation"
    assert runs(story, "short")
    story.run_all()
    story.pass_time(1800)
    story.change_pod("short-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert not runs(story, "long")
    story.pass_time(1800)
    story.settle()
    assert runs(story, "both")
    assert not runs(story, "long")


def test_a_patient_job_for_which_room_is_kept_takes_the_level_that_it_prefers_once_that_is_free() -> None:
    story = come_free(patient())
    story.change_pod("late-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert [each.name for each in story.status("both").placement.nodes] == ["gpu-1", "gpu-2"]  # type: ignore[union-attr]


def test_room_is_not_kept_for_one_that_is_patient_for_days() -> None:
    """It would stand idle as long, and no other job would get a reservation."""
    story = come_free(patient("48h"))
    assert pending(story, "both").estimated_start is None
    submit(story, "long", gpus=8, expectedDuration="3h")
    assert runs(story, "long")


def test_room_is_not_kept_for_a_gang_that_waits_for_the_smaller_ones_behind_it() -> None:
    """It prefers a rack, and none holds it: it gives way to a crowd, which would wait for that room."""
    places = {"gpu-1": ("b1", "r1"), "gpu-2": ("b1", "r1"), "gpu-3": ("b1", "r2"), "gpu-4": ("b2", "r3")}
    machines = [plugin_node(name) for name in places]
    for (machine, _), (block, rack) in zip(machines, places.values(), strict=True):
        machine["metadata"].setdefault("labels", {}).update({"net.example/block": block, "net.example/rack": rack})
    story = Story(cluster_topology("block", "rack"), *(each for several in machines for each in several))
    containers = [{"name": "trainer", "image": "train"}]
    there = {"spec": {"containers": containers, "nodeSelector": {"net.example/rack": "r2"}}}
    submit(story, "days", gpus=8, expectedDuration="48h", template=there)
    for name in ("one", "two", "three"):
        submit(story, name, gpus=8, expectedDuration="5m")
    story.run_all()
    asked = {"gpusPerNode": 8, "fabric": {"preferred": "rack", "patience": "50m"}}
    submit(story, "gang", gpus=24, expectedDuration="2h", topology=asked)
    for number in range(6):
        submit(story, f"small-{number}", gpus=8)
    story.pass_time(300)
    for name in ("one", "two", "three"):
        story.change_pod(f"{name}-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert runs(story, "gang") or any(runs(story, f"small-{number}") for number in range(6))


def test_a_patient_job_that_fits_from_the_first_has_no_reservation() -> None:
    story = come_free(patient())
    story.objects.pop(("TrainingJob", "team-b", "both"))
    patience = {"gpusPerNode": 8, "fabric": {"preferred": "rack", "patience": "1h"}}
    submit(story, "other", gpus=16, expectedDuration="1h", topology=patience)
    assert pending(story, "other").estimated_start is None
    story.add(training_job("long", spec={"gpus": 8, "expectedDuration": "3h"}))
    story.write_once()
    assert runs(story, "long")


def test_whoever_takes_other_gpus_passes(story: Story) -> None:
    for manifest in plugin_node("gpu-3", gpus=4):
        story.add(manifest)
    submit(story, "small", gpus=4)
    assert story.pod("small-a1-worker-00000")["spec"].get("nodeName", "gpu-3") == "gpu-3"
    assert runs(story, "small")
    submit(story, "next", gpus=4)
    assert not runs(story, "next")


def test_the_reserved_job_starts_when_its_room_is_free(story: Story) -> None:
    submit(story, "late", gpus=8)
    story.pass_time(3000)
    story.change_pod("runs-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert runs(story, "both")
    assert not runs(story, "late")


def test_an_overrun_moves_the_moment_and_says_so(story: Story) -> None:
    submit(story, "late", gpus=8, expectedDuration="3m")
    story.run_all()
    story.change_pod("late-a1-worker-00000", phase="Succeeded")
    story.pass_time(3600)
    story.settle()
    told = pending(story, "both")
    assert told.estimated_start == "2026-11-21T11:30:00Z"  # four eighths of an hour later
    assert "team-b/runs ran longer than declared already" in told.message
    submit(story, "short", gpus=8, expectedDuration="2m")  # nobody passes by a declaration then
    assert not runs(story, "short")


def test_the_moment_leaves_time_for_a_declaration_that_is_too_short() -> None:
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"))
    submit(story, "runs", gpus=8, expectedDuration="80h")
    story.run_all()
    story.pass_time(79 * 3600)
    submit(story, "both", **BOTH)
    told = pending(story, "both")
    assert told.estimated_start == "2026-11-26T00:00:00Z"  # in an hour it ends, or within 60 hours more
    assert "then team-b/runs will have ended as declared, or a little later" in told.message


def test_nobody_passes_longer_than_to_the_declared_end() -> None:
    """What a job is told leaves time for a wrong declaration; nobody else gets that time."""
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"))
    submit(story, "runs", gpus=8, expectedDuration="96h")
    story.run_all()
    story.pass_time(95 * 3600)
    submit(story, "both", **BOTH)
    told = pending(story, "both").estimated_start
    assert told is not None and told > "2026-11-25T10:00:00Z"
    for declared, passes in (("30m", True), ("2h", False), ("20h", False)):
        submit(story, f"late-{declared}", gpus=2, expectedDuration=declared)
        assert runs(story, f"late-{declared}") is passes
    assert "it may start at 2026-11-25 10:00 UTC" in pending(story, "late-2h").message


def test_jobs_that_can_never_fit_keep_nobody_from_a_reservation() -> None:
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"))
    submit(story, "runs", gpus=8, expectedDuration="1h")
    story.run_all()
    for gpus in (24, 32, 40, 48):
        submit(story, f"too-large-{gpus}", gpus=gpus, topology={"gpusPerNode": 8})
    submit(story, "both", **BOTH)
    assert pending(story, "both").estimated_start == "2026-11-21T11:00:00Z"
    submit(story, "late", gpus=8)
    assert not runs(story, "late")


def test_what_was_told_stays_while_it_may_hold() -> None:
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"))
    submit(story, "runs", gpus=8, expectedDuration="80h")
    story.run_all()
    story.pass_time(19 * 3600)
    submit(story, "both", **BOTH)
    assert pending(story, "both").estimated_start == "2026-11-24T18:00:00Z"
    for hours in (10, 15, 5):  # who asked first now would be told that it may be ten hours later
        story.pass_time(hours * 3600)
        submit(story, f"after-{hours}", gpus=8)
        assert pending(story, "both").estimated_start == "2026-11-24T18:00:00Z"
    story.pass_time(31 * 3600)
    story.settle()
    assert pending(story, "both").estimated_start == "2026-11-26T10:00:00Z"


def test_without_declarations_all_pass_as_ever() -> None:
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"))
    submit(story, "runs", gpus=8)
    story.run_all()
    submit(story, "both", **BOTH)
    assert pending(story, "both").estimated_start is None
    submit(story, "late", gpus=8)
    assert runs(story, "late")


def test_who_has_waited_long_is_passed_no_longer() -> None:
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"))
    submit(story, "runs", gpus=8)
    story.run_all()
    submit(story, "both", **BOTH)
    story.pass_time(12 * 3600)
    story.settle()
    assert "it has waited long, so that gpu-1, gpu-2 are kept for it" in pending(story, "both").message
    assert pending(story, "both").estimated_start is None
    submit(story, "late", gpus=8, expectedDuration="1m")
    assert pending(story, "late").reason == "BehindReservation"
    story.change_pod("runs-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert runs(story, "both")


def test_who_has_waited_long_keeps_what_it_was_told_while_others_are_a_little_late() -> None:
    """A job that started meanwhile on other GPUs and runs longer than is allowed for is another matter: it and those
    like it would move the room for ever."""
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), *plugin_node("gpu-3"))
    submit(story, "runs", gpus=8, expectedDuration="20h")
    submit(story, "holds", gpus=8, expectedDuration="30h")
    story.run_all()
    submit(story, "both", **BOTH)
    told = pending(story, "both").estimated_start
    assert told is not None
    story.pass_time(11 * 3600)
    submit(story, "passes", gpus=8, expectedDuration="2h")
    assert runs(story, "passes")
    for hours, may_hold in ((2, True), (1, True), (1, False)):  # on time, late by four eighths, by eight
        story.pass_time(hours * 3600)
        story.settle()
        assert pending(story, "both").estimated_start == (told if may_hold else None)
    assert "it has waited long" in pending(story, "both").message


def test_room_that_is_lost_is_told(story: Story) -> None:
    story.lose_node("gpu-2")
    story.pass_time(61)
    story.settle()
    assert pending(story, "both").estimated_start is None
    assert "kept for it" not in pending(story, "both").message
    story.recover_node("gpu-2")
    story.pass_time(61)
    story.settle()
    assert pending(story, "both").estimated_start == "2026-11-21T11:00:00Z"


def test_a_job_of_higher_priority_takes_the_reservation_over(story: Story) -> None:
    story.add(priority_class("high", 100, preempts=False))
    submit(story, "first", **BOTH, priorityClassName="high")
    assert pending(story, "first").estimated_start == "2026-11-21T11:00:00Z"
    story.pass_time(61)
    story.settle()
    assert pending(story, "both").estimated_start is None


def test_a_job_that_others_make_room_for_needs_no_reservation(story: Story) -> None:
    story.add(priority_class("high", 100))
    submit(story, "urgent", **BOTH, priorityClassName="high")
    assert not runs(story, "runs")
    assert story.status("urgent").placement is not None
    story.pass_time(61)
    story.settle()
    told = pending(story, "both")
    assert told.estimated_start is None
    assert "kept for it" not in told.message


def test_whoever_comes_ahead_of_it_is_kept_from_nothing(story: Story) -> None:
    story.add(priority_class("high", 100))
    submit(story, "urgent", gpus=8, priorityClassName="high")
    assert runs(story, "urgent")


def test_the_first_makes_way_where_it_fits_at_the_same_moment_all_the_same() -> None:
    """It needs one node and a half, so that half of a node is left over, whichever it is."""
    story = Story(*dra_node("gpu-1"), *dra_node("gpu-2"))
    submit(story, "runs", gpus=8, expectedDuration="1h")
    story.run_all()
    submit(story, "large", gpus=12)
    assert pending(story, "large").estimated_start == "2026-11-21T11:00:00Z"
    for name, passes in (("small", True), ("next", False)):
        submit(story, name, gpus=4)
        assert runs(story, name) is passes
    assert pending(story, "large").estimated_start == "2026-11-21T11:00:00Z"
    assert pending(story, "next").reason == "BehindReservation"


def test_the_estimate_is_written_once_a_minute_at_most(story: Story) -> None:
    """A job that ends earlier than it declared, and one that is late, move it."""
    before = story.written.count("status Queued")
    for declared in ("50m", "40m", "30m", "20m"):
        story.edit_job("runs", expectedDuration=declared)
        story.settle()
        story.pass_time(5)
    assert story.written.count("status Queued") - before <= 1
    story.pass_time(60)
    story.settle()
    assert pending(story, "both").estimated_start == "2026-11-21T10:20:00Z"


def test_jobs_of_other_namespaces_are_counted_and_not_named() -> None:
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"))
    other = training_job("secret", namespace="team-a", spec={"gpus": 8, "expectedDuration": "1h"})
    story.add(other)
    story.settle()
    submit(story, "both", **BOTH)
    assert "then 1 job will have ended as declared" in pending(story, "both").message
    assert "secret" not in pending(story, "both").message


def test_who_has_a_reservation_keeps_it_while_a_quota_refuses_another_of_its_namespace_again_and_again() -> None:
    """Each try takes room, or ends somebody, for a moment: what is said of the others does not come and go with it."""
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), priority_class("high", 1000))
    submit(story, "runs", gpus=8, expectedDuration="3h")
    story.run_all()
    submit(story, "both", **BOTH)
    limit = {"requests.nvidia.com/gpu": "8"}
    story.quotas = [Quota("gpus", hard=limit, used=limit)]
    submit(story, "urgent", **BOTH, priorityClassName="high")
    for _ in range(8):
        story.pass_time(15)
        story.settle()
    told = pending(story, "both")
    assert told.estimated_start is not None
    for _ in range(60):
        story.pass_time(15)
        story.settle()
        assert pending(story, "urgent").reason == "QuotaExceeded"
        assert pending(story, "both") == told


class NotingStory(Story):
    """One that notes for whom room is kept, in every decision."""

    kept_for: frozenset[str] = frozenset()

    def decide(self, memory: Memory = Memory()) -> Decision:  # noqa: B008 - frozen
        decision = super().decide(memory)
        self.kept_for |= {each.job.name for each in decision.schedule.reservations}
        return decision


def test_who_has_a_reservation_keeps_it_while_one_that_waits_for_no_room_is_not_asked() -> None:
    """The name of its Pod is taken. While a third job is tried, each minute, it is not asked."""
    story = NotingStory(
        *plugin_node("gpu-1"), *plugin_node("gpu-2"), priority_class("low", -10), priority_class("high", 10)
    )
    submit(story, "runs", gpus=16, expectedDuration="20h", priorityClassName="low")
    story.run_all()
    story.add(worker("named", 0, node="gpu-3", job_uid="uid-of-another"))
    submit(story, "named", gpus=16, elastic={"minGPUs": 8})
    story.pass_time(1200)
    story.settle()
    submit(story, "told", gpus=8, priorityClassName="low")
    limit = {"requests.nvidia.com/gpu": "0"}
    story.quotas = [Quota("gpus", hard=limit, used=limit)]
    submit(story, "tried", gpus=8, priorityClassName="high")
    for _ in range(40):
        story.pass_time(15)
        story.settle()
        if story.now.minute < 25:
            story.kept_for = frozenset()
    assert (pending(story, "named").reason, pending(story, "tried").reason) == ("NameConflict", "QuotaExceeded")
    assert story.kept_for == {"told"}


def test_spare_nodes_come_free_with_their_job() -> None:
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"))
    submit(story, "runs", gpus=8, spares=1, expectedDuration="1h")
    submit(story, "both", **BOTH)
    assert pending(story, "both").estimated_start == "2026-11-21T11:00:00Z"


def test_it_is_told_of_no_other_room_while_a_job_that_a_policy_refuses_is_on_trial() -> None:
    """Each try takes the free node until it is refused, and what is kept moves to the two others meanwhile."""
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), *plugin_node("gpu-3"))
    submit(story, "first", gpus=8)
    submit(story, "runs", **BOTH, expectedDuration="9h")
    story.run_all()
    del story.objects["TrainingJob", "team-b", "first"]
    story.remove_pod("first-a1-worker-00000")
    submit(story, "both", **BOTH)
    assert "start on gpu-1, gpu-2, which" in pending(story, "both").message
    story.forbidden["late-a1-worker-00000"] = 'admission webhook "limits.example" denied the request: not this one'
    submit(story, "late", gpus=8)
    for _ in range(5):
        story.pass_time(60)
        story.settle()
    told, tries = len(story.written), len(story.tried)
    for _ in range(60):
        story.pass_time(60)
        story.settle()
    assert pending(story, "late").reason == "TemplateInvalid"
    assert len(story.tried) > tries + 5
    assert [each for each in story.written[told:] if each.startswith("status")] == []
