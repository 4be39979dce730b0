"""Which version of NCCL a job's Pods have: told by the sidecar or a preflight, kept in the status, and what the
warnings then say."""

import json
from typing import Any

import pytest

from closeknit.api.trainingjob_status import EnvironmentStatus
from closeknit.launch.manifests.sidecar_container import VARIABLE
from scenarios.stories import end_trainer, two_plugin_nodes
from scenarios.story import Story
from unit.lifecycle.health.test_hung_gang import PODS, containers
from unit.lifecycle.health.test_preflight_result import PREFLIGHT
from unit.lifecycle.restart.test_in_place import FEATURES

GID = {"name": "NCCL_IB_GID_INDEX", "value": "3"}  # harms from 2.21 on
TESTS = {"name": "NCCL_RUN_DIAGNOSTICS", "value": "1"}  # harms from 2.31 on, and is not read before
RAILS = {"name": "NCCL_IB_HCA", "value": "=mlx5_0::0:0"}  # harms before 2.30
FAILOVER = {"name": "NCCL_IB_RESILIENCY_PORT_FAILOVER", "value": "1"}  # from 2.29.7
HOSTILE: list[Any] = [7, None, [], "", "two", "2.28.9.1", "2" * 500_000, "\x1b[31m2.28.9", "-1.0.0", {"major": 2}]


def running(*env: dict[str, Any], **spec: Any) -> Story:
    trainer = {"name": "trainer", "image": "i", "command": ["train"], "env": list(env)}
    template = {"spec": {"containers": [trainer]}}
    story = two_plugin_nodes(**{"restart": {"limit": 2}, "template": template, **spec})
    story.sidecar_image = "closeknit/agent:1"
    for (kind, _, _), found in story.objects.items():
        if kind == "Node":
            found["status"]["declaredFeatures"] = FEATURES
    story.settle()
    story.run_all()
    for pod in PODS:
        story.change_pod(pod, **containers())
    story.settle()
    return story


def says(story: Story, version: Any, run: int = 0) -> None:
    story.change_pod(PODS[0], **containers(json.dumps({"run": run, "hang": None, "nccl": version})))
    story.settle()


def environment(story: Story) -> EnvironmentStatus:
    return story.status().environment or EnvironmentStatus()


def degraded(story: Story) -> str | None:
    conditions = story.status().conditions
    return next((each.reason for each in conditions if (each.type, each.status) == ("Degraded", "True")), None)


def test_a_warning_that_does_not_hold_for_the_version_goes_with_its_condition() -> None:
    story = running(RAILS)
    (before,) = environment(story).warnings
    assert before.startswith("NCCL_IB_HCA==mlx5_0::0:0: with NCCL before 2.30: ")
    assert degraded(story) == "HarmfulSettings"
    says(story, "2.30.7")
    assert (environment(story).nccl_version, environment(story).warnings) == ("2.30.7", [])
    assert degraded(story) is None


def test_a_harm_that_this_nccl_does_not_read_is_told_as_that_alone() -> None:
    story = running(TESTS)
    assert degraded(story) == "HarmfulSettings"
    says(story, "2.30.7")
    (after,) = environment(story).warnings
    assert after.startswith("NCCL_RUN_DIAGNOSTICS=1: its Pods have NCCL 2.30.7, to which this means nothing: NCCL 2.31")
    assert degraded(story) is None


def test_a_warning_that_holds_says_so_without_an_if() -> None:
    story = running(GID)
    says(story, "2.28.9+cuda13.0")
    (after,) = environment(story).warnings
    assert after.startswith("NCCL_IB_GID_INDEX=3: the index differs")
    assert (environment(story).nccl_version, degraded(story)) == ("2.28.9", "HarmfulSettings")


def test_a_variable_that_this_nccl_does_not_read_is_told_and_degrades_nothing() -> None:
    story = running(FAILOVER)
    assert environment(story).warnings == []
    says(story, "2.28.9")
    (told,) = environment(story).warnings
    assert told == (
        "NCCL_IB_RESILIENCY_PORT_FAILOVER=1: its Pods have NCCL 2.28.9, to which this means nothing: NCCL 2.29.7 and "
        "later read it; take another image, or leave it out"
    )
    assert degraded(story) is None


@pytest.mark.parametrize(
    ("version", "more", "words"),
    [
        ("2.28.3", {}, "no hang is seen; set restart.stallDeadline, and have the trainer touch its file"),
        ("2.24.3", {"stallDeadline": "10m"}, "only the file of restart.stallDeadline tells of a hang"),
        ("2.28.7", {}, None),
    ],
)
def test_an_nccl_by_which_no_hang_is_seen_is_told(version: str, more: dict[str, str], words: str | None) -> None:
    story = running(restart={"limit": 2, "onHang": "Restart", **more})
    assert environment(story).warnings == []
    says(story, version)
    if words is None:
        assert environment(story).warnings == []
        return
    (told,) = environment(story).warnings
    assert told.startswith(f"restart.onHang=Restart: its Pods have NCCL {version}, and NCCL 2.28.7 and later tell")
    assert words in told


def test_what_is_known_is_written_once_and_stays() -> None:
    story = running()
    says(story, "2.28.9")
    assert environment(story) == EnvironmentStatus(nccl_version="2.28.9")
    assert story.plans() == ()
    story.change_pod(PODS[0], **containers())  # its sidecar has started again for another reason
    story.settle()
    assert environment(story).nccl_version == "2.28.9"
    says(story, "2.30.7", run=3)  # of any run: the image is the same
    assert environment(story).nccl_version == "2.30.7"


def test_a_version_that_an_older_crd_drops_is_not_written_for_ever() -> None:
    story = running(GID)
    story.dropped = ("environment", "ncclVersion")
    before = len(story.written)
    says(story, "2.28.9")
    assert story.written[before:] == ["status Running"] * 2
    assert environment(story).nccl_version is None
    assert environment(story).warnings[0].startswith("NCCL_IB_GID_INDEX=3: the index differs")  # what it has is told
    assert [plan.unkept for plan in story.plans()] == [frozenset({"status.environment.ncclVersion"})]
    says(story, "2.30.7")  # something else of it is news: that is written, and no more
    assert story.written[before + 2 :] == []
    story.objects["TrainingJob", "team-b", "train"]["metadata"]["resourceVersion"] = story.next_version()
    story.settle()  # somebody has changed the job: it may be another CRD by now
    assert story.written[before + 2 :] == ["status Running"]


@pytest.mark.parametrize("version", HOSTILE, ids=lambda each: str(each)[:12])
def test_words_that_are_no_version_cost_nothing_but_themselves(version: Any) -> None:
    story = running(GID)
    before = story.status()
    says(story, version)
    assert story.status() == before


def test_the_next_attempt_begins_with_the_version_of_the_one_before() -> None:
    story = running(RAILS)
    says(story, "2.30.7")
    end_trainer(story, 1)
    for _ in range(4):
        story.pass_time(60)
        story.settle()
    assert story.status().attempt == 2
    assert (environment(story).nccl_version, environment(story).warnings) == ("2.30.7", [])


@pytest.mark.parametrize(("env", "expected"), [((), False), ((GID,), True), ((FAILOVER,), True)])
def test_the_sidecar_tells_it_by_itself_where_words_wait_for_it(
    env: tuple[dict[str, Any], ...], expected: bool
) -> None:
    story = running(*env)
    spec = story.pod(PODS[0])["spec"]
    (sidecar,) = [each for each in spec["containers"] if each["name"] == "closeknit-sidecar"]
    told = json.loads(next(each["value"] for each in sidecar["env"] if each["name"] == VARIABLE))
    assert (told["ras"], told.get("nccl", False)) == (True, expected)


@pytest.mark.parametrize(("version", "expected"), [("2.20.5", "2.20.5"), (None, None), (7, None), ("x" * 9000, None)])
def test_a_preflight_tells_it_too(version: Any, expected: str | None) -> None:
    story = two_plugin_nodes(preflight="Warn")
    story.settle()
    result = {"inside": 358.1, "world": 340.2, "slow": [], "link": [], "nccl": version}
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": json.dumps(result)}}
    for pod in PODS:
        story.change_pod(pod, initContainerStatuses=[{"name": PREFLIGHT, "state": ended}])
    story.run_all()
    for _ in range(3):
        story.settle()
    assert environment(story).nccl_version == expected
    assert degraded(story) is None
