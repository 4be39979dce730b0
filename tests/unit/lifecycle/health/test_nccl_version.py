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
FAILOVER = {"name": "NCCL_IB_RESILIENCY_PORT_FAILOVER", "value": "1"}  # from 2.29.7
HOSTILE = [7, None, [], "", "two", "2.28.9.1", "2" * 500_000, "\x1b[31m2.28.9", "-1.0.0", {"major": 2}]


def running(*env: dict[str, Any], **spec: Any) -> Story:
    trainer = {"name": "trainer", "image": "i", "command": ["train"], "env": list(env)}
    template = {"spec": {"containers": [trainer]}}
    story = two_plugin_nodes(restart={"limit": 2}, template=template, **spec)
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
    story = running(GID)
    (before,) = environment(story).warnings
    assert before.startswith("NCCL_IB_GID_INDEX=3: with NCCL 2.21 and later: ")
    assert degraded(story) == "HarmfulSettings"
    says(story, "2.20.5")
    assert (environment(story).nccl_version, environment(story).warnings) == ("2.20.5", [])
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


@pytest.mark.parametrize("version", HOSTILE, ids=lambda each: str(each)[:12])
def test_words_that_are_no_version_cost_nothing_but_themselves(version: Any) -> None:
    story = running(GID)
    before = story.status()
    says(story, version)
    assert story.status() == before


def test_the_next_attempt_begins_with_the_version_of_the_one_before() -> None:
    story = running(GID)
    says(story, "2.20.5")
    end_trainer(story, 1)
    for _ in range(4):
        story.pass_time(60)
        story.settle()
    assert story.status().attempt == 2
    assert (environment(story).nccl_version, environment(story).warnings) == ("2.20.5", [])


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
