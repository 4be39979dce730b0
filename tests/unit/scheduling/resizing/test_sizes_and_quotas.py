"""An elastic job that a quota leaves a part of its GPUs starts with that part, and grows once the quota leaves more."""

from collections.abc import Mapping
from typing import Any

import pytest

from closeknit.api.reasons import EventReason, PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.writes.quota_demand import QuotaDemand
from closeknit.lifecycle.writes.quota_shortfall import QuotaRoom, quota_room
from closeknit.lifecycle.writes.resource_quotas import Quota, ScopeRequirement
from scenarios.manifests import priority_class
from scenarios.stories import TeamStory, placement
from scenarios.story import Story, dra_node, plugin_node
from unit.scheduling.resizing.test_elastic_jobs import (
    KINDS,
    MINUTE,
    begin,
    elastic,
    ends,
    finish,
    fixed,
    site,
    size,
)

pytestmark = pytest.mark.usefixtures("no_mistakes")


def pods(hard: int, used: int = 0) -> list[Quota]:
    """A quota of Pods: a whole node is one Pod here."""
    return [Quota("team", {"pods": str(hard)}, {"pods": str(used)})]


def waits_for_quota(story: Story) -> str:
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == PendingReason.QUOTA_EXCEEDED
    return pending.message


@KINDS
def test_it_starts_with_what_the_quota_leaves(kind: Any) -> None:
    story = site(kind=kind)
    story.quotas = pods(3)
    story.add(elastic())
    story.settle()
    assert waits_for_quota(story).endswith(
        "quota team: pods: asked 4, hard 3, used 0, left 3; free some of it, ask for less, or have an administrator "
        "raise it; after a minute it starts with fewer, 8 at least, where so many fit and delay nobody"
    )
    story.pass_time(MINUTE)
    begin(story)
    story.pass_time(MINUTE)
    begin(story)
    assert (story.status().state, size(story), ends(story)) == (State.RUNNING, 24, [])


def team(
    most_pods: int, *jobs: dict[str, Any], kind: Any = plugin_node, made: type[TeamStory] = TeamStory
) -> TeamStory:
    story = made(*(each for number in range(4) for each in kind(f"gpu-{number}")), priority_class("high", 100))
    story.hard = {"pods": str(most_pods)}
    for job in jobs:
        story.add(job)
    begin(story)
    return story


def later(story: Story, minutes: int, every: int = 1) -> None:
    for _ in range(minutes // every):
        story.pass_time(every * MINUTE)
        begin(story)


@KINDS
def test_it_grows_as_far_as_the_quota_leaves_more(kind: Any) -> None:
    story = team(2, elastic(), kind=kind)
    later(story, 2)
    assert size(story) == 16
    later(story, 20)
    assert (story.status().state, size(story), ends(story)) == (State.RUNNING, 16, [])
    assert [each.reason for each in story.notices].count(EventReason.RESIZE_REFUSED) == 1
    story.hard = {"pods": "3"}
    later(story, 60, 5)
    assert (size(story), ends(story)) == (24, [("Grown", False)])
    assert "asked 4, hard 3" in (story.status().message or "")
    story.hard = {"pods": "4"}
    later(story, 120, 5)
    assert (story.status().state, size(story), ends(story)) == (State.RUNNING, 32, [("Grown", False)] * 2)


@KINDS
def test_it_does_not_grow_into_the_quota_of_its_pod_on_a_dead_node(kind: Any) -> None:
    """A quota counts that Pod until somebody removes it, and the gang would be refused once it has ended."""
    story = team(4, elastic(), kind=kind)
    story.lose_node("gpu-3")
    story.mark_deleted("train-a1-worker-00003")
    begin(story)
    later(story, 3)
    assert size(story) == 24
    for manifest in kind("gpu-4"):
        story.add(manifest)
    before = ends(story)
    later(story, 60, 5)
    assert (story.status().state, size(story), ends(story)) == (State.RUNNING, 24, before)
    assert "asked 4, hard 4, used 1, left 3" in (story.status().message or "")
    story.remove_pod("train-a1-worker-00003")
    later(story, 60, 5)
    assert (story.status().state, size(story), ends(story)) == (State.RUNNING, 32, [*before, ("Grown", False)])


def test_what_a_quota_left_is_no_matter_once_it_waits_for_room() -> None:
    """The quota is gone, and all of its GPUs do not fit: it starts with those that are free."""
    story = team(0, elastic())
    later(story, 2)
    assert waits_for_quota(story)
    story.hard = {}
    story.add(fixed("other", priorityClassName="high"))
    later(story, 10)
    assert (story.status().state, size(story)) == (State.RUNNING, 24)


def test_it_starts_with_all_where_they_are_free_after_a_wait_for_room() -> None:
    story = team(1, elastic())
    story.hard = {}
    story.add(fixed("other", 32, priorityClassName="high"))
    story.pass_time(MINUTE / 3)
    begin(story)
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == PendingReason.INSUFFICIENT_GPUS
    later(story, 30)
    finish(story, "other")
    begin(story)
    assert (story.status().state, size(story)) == (State.RUNNING, 32)


@pytest.mark.parametrize(
    ("gpus", "least", "left", "runs_with"), [(12, 8, 1, 8), (20, 16, 2, 16), (20, 8, 2, 16), (28, 24, 3, 24)]
)
def test_whole_nodes_take_fewer_pods_than_a_larger_gang_has(gpus: int, least: int, left: int, runs_with: int) -> None:
    """20 GPUs are four Pods of five, and 16 are two of eight."""
    story = team(left, elastic(gpus=gpus, least=least))
    later(story, 4)
    assert (story.status().state, size(story)) == (State.RUNNING, runs_with)


@pytest.mark.parametrize("others", [[], [fixed("other")]], ids=["all are free", "not all are free"])
def test_a_quota_that_leaves_too_little_is_told_once(others: list[dict[str, Any]]) -> None:
    """Also where fewer GPUs are free than it asks for: what is in its way stays the quota."""
    story = team(1, *others, elastic(least=16))
    later(story, 5)
    told = len(story.written)
    later(story, 30)
    assert waits_for_quota(story)
    assert len(story.written) <= told + 1


def test_what_a_quota_says_of_all_gpus_and_of_fewer_is_told_together() -> None:
    """A quota of GPUs leaves the least size, and one of CPUs not what a LimitRange adds to that: in turns they would be
    a write a minute."""
    story = site()
    left = {"requests.nvidia.com/gpu": "8", "requests.cpu": "60"}
    story.quotas = [Quota("team", left, dict.fromkeys(left, "0"))]
    story.limited_cpu = "100"
    story.add(elastic())
    for _ in range(10):
        story.settle()
        story.pass_time(MINUTE)
    told, version = waits_for_quota(story), len(story.written)
    assert "requests.nvidia.com/gpu: asked 32, hard 8, used 0, left 8" in told
    assert "; with 8 GPUs: the whole gang" in told
    assert "requests.cpu: asked 100, hard 60, used 0, left 60" in told
    assert "starts with fewer" not in told
    for _ in range(30):
        story.settle()
        story.pass_time(MINUTE)
    assert (waits_for_quota(story), len(story.written)) == (told, version)
    story.limited_cpu = "50"  # and once it may have fewer, it has
    for _ in range(6):
        begin(story)
        story.pass_time(MINUTE)
    assert (story.status().state, size(story)) == (State.RUNNING, 8)


@pytest.mark.parametrize("left", [0, 1], ids=["nothing", "less than its least size"])
def test_it_waits_where_the_quota_leaves_too_little(left: int) -> None:
    story = site()
    story.quotas = pods(left)
    story.add(elastic(least=16))
    story.settle()
    assert "starts with fewer" not in waits_for_quota(story)
    for _ in range(5):
        story.pass_time(MINUTE)
        begin(story)
        waits_for_quota(story)
    story.quotas = pods(4)
    story.pass_time(MINUTE)
    begin(story)
    assert (story.status().state, size(story)) == (State.RUNNING, 32)


def test_it_gets_all_where_the_quota_is_raised_within_the_minute() -> None:
    story = site()
    story.quotas = pods(3)
    story.add(elastic())
    story.settle()
    waits_for_quota(story)
    story.quotas = pods(4)
    story.pass_time(MINUTE / 2)
    begin(story)
    assert (story.status().state, size(story)) == (State.RUNNING, 32)


def test_what_the_quota_leaves_is_found_again_by_another_operator() -> None:
    story = site()
    story.quotas = pods(2)
    story.add(elastic())
    story.settle()
    story.pass_time(MINUTE)
    story.answers.clear()
    begin(story)
    waits_for_quota(story)
    story.pass_time(MINUTE)
    begin(story)
    assert (story.status().state, size(story)) == (State.RUNNING, 16)


def test_what_a_quota_leaves_is_nothing_for_a_changed_job() -> None:
    """Its Pods may ask for less now, so that all of them are tried first."""
    story = site()
    story.quotas = pods(2)
    story.add(elastic())
    story.settle()
    story.edit_job(gpus=16)
    story.pass_time(5)  # a refused namespace is left alone for a moment
    story.settle()
    assert len(placement(story).nodes) == 2


def test_what_a_policy_refuses_of_a_smaller_size_is_told_once_and_made_once() -> None:
    """The quota leaves too little for all, and a policy takes no rank 1. The quota is asked of all, and the policy of
    what the quota leaves: these would be told in turn, and each time Pods would be made."""
    story = team(3, elastic())
    story.forbidden["train-a1-worker-00001"] = "no rank 1 here"
    later(story, 8)
    assert story.status().pending.reason == PendingReason.TEMPLATE_INVALID  # type: ignore[union-attr]
    told = len(story.written)
    later(story, 120, 2)
    assert len(story.written) <= told + 1
    story.forbidden.clear()
    later(story, 10)
    assert (story.status().state, size(story)) == (State.RUNNING, 24)


class StrictStory(TeamStory):
    """One whose policy takes no rank 2 of a gang of 24: two of its Pods are tried, and that is none of them."""

    def denial(self, manifest: Mapping[str, Any]) -> str | None:
        if manifest["kind"] != "Pod" or not manifest["metadata"]["name"].endswith("-00002"):
            return None
        env = {each["name"]: each.get("value") for each in manifest["spec"]["containers"][0]["env"]}
        return "no rank 2 of so few" if env["CLOSEKNIT_WORLD_SIZE"] == "24" else None


def test_what_was_refused_of_a_smaller_size_is_asked_before_it_is_made_again() -> None:
    """The policy takes what the quota is too small for, and the other way round: nothing but words is written then."""
    story = team(3, elastic(), made=StrictStory)
    later(story, 8)
    made = [each for each in story.written if not each.startswith("status")]
    later(story, 120, 2)
    assert [each for each in story.written if not each.startswith("status")] == made
    assert "create Pod train-a1-worker-00000" in made


def test_what_the_quota_leaves_is_learnt_though_a_policy_refuses_the_whole_gang() -> None:
    """The policy takes no rank 3, and the quota leaves three Pods: there is none in these."""
    story = team(4)
    story.forbidden["train-a1-worker-00003"] = "no rank 3 here"
    story.add(elastic())
    later(story, 5)
    assert story.status().pending.reason == PendingReason.TEMPLATE_INVALID  # type: ignore[union-attr]
    story.hard = {"pods": "3"}
    later(story, 15)
    assert (story.status().state, size(story)) == (State.RUNNING, 24)


class LaggingStory(Story):
    """A quota of devices, whose count is read too late at first."""

    is_late = True

    @property
    def quotas(self) -> list[Quota]:
        return [Quota("team", {DEVICES: "8"}, {DEVICES: str(0 if self.is_late else self._claimed())})]

    @quotas.setter
    def quotas(self, _: list[Quota]) -> None:
        pass

    def denial(self, manifest: Mapping[str, Any]) -> str | None:
        if manifest["kind"] != "ResourceClaim" or self._claimed() + _devices(manifest) <= 8:
            return None
        return (
            f"exceeded quota: team, requested: {DEVICES}={_devices(manifest)}, used: {DEVICES}=4, limited: {DEVICES}=8"
        )

    def _claimed(self) -> int:
        return sum(_devices(each) for (kind, _, _), each in self.objects.items() if kind == "ResourceClaim")


def test_a_refused_claim_is_asked_again_as_it_would_be_made_now() -> None:
    """One for all of its GPUs is too large for the quota, and one for the size that the quota leaves is not."""
    story = LaggingStory(*dra_node("gpu-1"), *dra_node("gpu-2"))
    story.add(fixed("a", 4))
    story.add(elastic(gpus=8, least=4))
    story.write_once()
    story.is_late = False
    later(story, 5)
    assert (story.status().state, size(story)) == (State.RUNNING, 4)


def test_a_job_that_a_quota_refuses_again_and_again_alters_no_told_room_to_grow() -> None:
    """It is tried each minute, and its GPUs count as taken until the API server answers."""
    story = team(3, elastic())
    later(story, 1)
    story.add(fixed("other"))
    story.pass_time(MINUTE / 2)
    begin(story)
    room, told = placement(story).room, len(story.written)
    assert (size(story), room and room.gpus) == (24, 32)
    later(story, 4)
    assert (placement(story).room, len(story.written)) == (room, told)
    later(story, 3)
    assert [each.reason for each in story.notices].count(EventReason.RESIZE_REFUSED) == 1


def test_jobs_before_it_in_the_queue_keep_their_turn() -> None:
    """One that waits for a larger room than is free has it kept: the elastic one takes nothing of it, whatever the
    quota leaves."""
    story = site(fixed("runs", 16, expectedDuration="10m"))
    story.quotas = pods(4, used=2)
    story.add(fixed("first", 32, priorityClassName="high"))
    story.add(elastic(least=8))
    story.settle()
    for _ in range(3):
        story.pass_time(MINUTE)
        begin(story)
    assert (story.status("first").state, story.status().state) == (State.QUEUED, State.QUEUED)


@KINDS
def test_others_make_room_for_no_more_than_the_quota_leaves(kind: Any) -> None:
    story = site(*(fixed(f"low-{number}") for number in range(4)), kind=kind)
    of_high = ScopeRequirement("PriorityClass", "In", ["high"])
    story.quotas = [Quota("team", {"pods": "2"}, {"pods": "0"}, (of_high,))]
    story.add(elastic(priorityClassName="high"))
    story.settle()
    waits_for_quota(story)
    for _ in range(3):
        story.pass_time(MINUTE)
        begin(story)
    assert (story.status().state, size(story)) == (State.RUNNING, 16)
    assert sorted(len(ends(story, f"low-{number}")) for number in range(4)) == [0, 0, 1, 1]


def test_what_other_sizes_of_a_gang_take_of_quotas() -> None:
    asked = QuotaDemand({"pods": 4, "cpu": 32000, GPUS: 30}, {"services": 1, CLAIMS: 4}, gpus=30)

    def room(**hard: int) -> QuotaRoom:
        found = quota_room(asked, [Quota("team", {_name(key): str(each) for key, each in hard.items()}, USED)])
        assert found is not None
        return found

    assert [room(pods=3).holds(pods, 30) for pods in (3, 4)] == [True, False]
    assert [room(cpu=20).holds(pods, 16) for pods in (2, 3)] == [True, False]
    assert [room(gpus=20).holds(4, gpus) for gpus in (20, 21)] == [True, False]
    assert [room(claims=2).holds(pods, 16) for pods in (2, 3)] == [True, False]
    assert not room(services=0, pods=3).holds(1, 1)
    assert [room(pods=3, gpus=20).holds_likely(gpus) for gpus in (16, 20, 21, 23)] == [True, True, False, False]
    assert quota_room(asked, [Quota("team", {"pods": "4"}, USED)]) is None
    assert quota_room(QuotaDemand({"pods": 2}, {}), [Quota("team", {"pods": "1"}, USED)]) is None


def _devices(claim: Mapping[str, Any]) -> int:
    return sum(each["exactly"]["count"] for each in claim["spec"]["devices"]["requests"])


DEVICES = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
GPUS, CLAIMS = "requests.nvidia.com/gpu", "count/resourceclaims.resource.k8s.io"
USED = {"pods": "0", "cpu": "0", GPUS: "0", "services": "0", CLAIMS: "0"}


def _name(key: str) -> str:
    return {"gpus": GPUS, "claims": CLAIMS}.get(key, key)
