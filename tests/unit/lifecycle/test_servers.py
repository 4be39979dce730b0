"""Parameter servers: they share their workers' nodes, with all that they need there, and serve until nobody is left."""

from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.placement.values.request import request
from scenarios.manifests import claiming, node, node_topology, pod, storage_class, training_job, volume_claim
from scenarios.stories import booked_nodes, ended
from scenarios.story import Story

PS, WORKER = "train-a1-ps-{:05d}".format, "train-a1-worker-{:05d}".format


def template(cpu: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "trainer", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}}


def job(framework: str = "TensorFlow", replicas: int = 3, server: dict[str, Any] | None = None) -> dict[str, Any]:
    """Two nodes of four GPUs, and tasks of two CPUs beside workers of four."""
    servers = {"replicas": replicas, "template": server or template("2")}
    return training_job(
        spec={
            "gpus": 8,
            "framework": framework,
            "topology": {"gpusPerNode": 4},
            "parameterServers": servers,
            "template": template("4"),
        }
    )


def nodes(cpu: str = "16") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in ("gpu-1", "gpu-2"):
        found += [node(name, gpus=4, allocatable={"cpu": cpu}), node_topology(name, count=4)]
    return found


def running(framework: str = "TensorFlow") -> Story:
    story = Story(*nodes(), job(framework))
    story.settle()
    story.run_all()
    story.settle()
    return story


def pending(story: Story) -> tuple[str, str]:
    found = story.status().pending
    assert found is not None
    return found.reason, found.message


def test_servers_are_dealt_out_over_the_nodes_of_the_workers() -> None:
    story = running()
    assert story.pods() == [PS(0), PS(1), PS(2), WORKER(0), WORKER(1)]
    placement = story.status().placement
    assert placement is not None and placement.parameter_servers is not None
    first, second = (each.name for each in booked_nodes(story))
    assert [(each.node, each.index) for each in placement.parameter_servers] == [(first, 0), (second, 1), (first, 2)]
    assert story.pod(PS(1))["spec"]["nodeName"] == second
    told = {each.type: (each.status, each.message) for each in story.status().conditions}
    assert told["Running"] == ("True", "5 of 5 Pods run")
    assert told["PlacementVerified"] == ("True", "every Pod has the planned GPUs")
    assert placement.node_count == 2


def test_what_a_node_must_have_left_for_its_worker_and_servers() -> None:
    asked = request(JobKey("team-b", "train"), Story(job()).cluster.jobs[JobKey("team-b", "train")].spec)
    assert dict(asked.needs) == {"cpu": 4000 + 2 * 2000, "pods": 3}
    story = Story(*nodes(cpu="7"), job())
    story.settle()
    assert pending(story)[0] == "InsufficientResources"
    story = Story(*nodes(cpu="8"), job())
    story.settle()
    assert story.status().placement is not None


def test_what_is_booked_for_servers_is_not_free_for_others() -> None:
    """Neither before their Pods are bound nor after."""
    story = Story(*nodes(cpu="10"), job())
    story.settle()
    booked = {name: dict(view.spare or {}).get("cpu") for name, view in story.cluster.nodes.items()}
    assert sorted(booked.values(), key=str) == [2000, 4000]  # two servers and one
    story.run_all()
    story.settle()
    assert {name: dict(view.spare or {}).get("cpu") for name, view in story.cluster.nodes.items()} == booked


def test_tensorflow_is_over_with_its_chief() -> None:
    story = running()
    story.change_pod(PS(0), phase="Succeeded")
    story.change_pod(WORKER(1), phase="Failed")  # its chief has gone
    story.settle()
    status = story.status()
    (done,) = [each for each in status.conditions if each.type == "Succeeded"]
    first = booked_nodes(story)[0].name
    assert (status.state, done.message) == ("Succeeded", f"the chief on node {first} ended with exit code 0")
    assert story.pods() == [PS(0), WORKER(1)]  # the others hold nothing any more


def test_custom_is_over_with_its_workers() -> None:
    story = running("Custom")
    story.change_pod(PS(0), phase="Succeeded")
    story.settle()
    assert story.status().state == "Running"
    story.change_pod(WORKER(0), phase="Succeeded")
    story.change_pod(WORKER(1), phase="Succeeded")
    story.settle()
    (done,) = [each for each in story.status().conditions if each.type == "Succeeded"]
    assert done.message == "all 2 workers ended with exit code 0"
    assert story.pods() == [PS(0), WORKER(0), WORKER(1)]


def test_a_server_that_has_ended_is_over_though_its_pod_is_removed() -> None:
    story = running("Custom")
    story.change_pod(PS(1), phase="Succeeded")
    story.settle()
    story.remove_pod(PS(1))
    story.settle()
    assert (story.status().state, story.status().attempts) == ("Running", [])


def test_a_server_that_fails_ends_the_job() -> None:
    story = running()
    story.change_pod(PS(2), phase="Failed")
    story.settle()
    assert story.status().state == "Failed"
    assert story.pods() == [PS(2)]


def test_a_server_that_is_deleted_starts_the_job_again() -> None:
    story = running()
    story.remove_pod(PS(1))
    story.settle()
    (ended,) = story.status().attempts
    assert (ended.reason, ended.message) == (
        "ChildDeleted", "train-a1 server 1 was deleted before it was over; the job starts again"
    )  # fmt: skip
    assert story.pods() == [name.replace("-a1-", "-a2-") for name in (PS(0), PS(1), PS(2), WORKER(0), WORKER(1))]


def test_a_missing_server_is_made_before_the_gang_runs() -> None:
    story = Story(*nodes(), job())
    story.settle()
    story.remove_pod(PS(1))
    story.pass_time(1)
    story.settle()
    assert PS(1) in story.pods()
    assert story.status().attempts == []


def test_a_name_that_is_taken_is_told() -> None:
    story = Story(*nodes(), job(), pod(PS(2), namespace="team-b", requests={}))
    story.settle()
    assert pending(story)[0] == "NameConflict"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {"nodeSelector": {"on": "cpu"}},
            "spec.parameterServers.template.spec.nodeSelector is an object; parameter servers run on the nodes of "
            "their workers: remove it, or set it in spec.template.spec",
            id="nodes of their own",
        ),
        pytest.param(
            {"serviceAccountName": "admin"},
            "spec.parameterServers.template.spec.serviceAccountName is admin, and that of the workers is default; give "
            "both the same",
            id="another service account",
        ),
        pytest.param(
            {"restartPolicy": "Always"},
            'spec.parameterServers.template.spec.restartPolicy is "Always"; a rank that is restarted alone never meets '
            "the others again: set Never, or leave it out",
            id="what no template may have",
        ),
        pytest.param(
            {"containers": []},
            "spec.parameterServers.template.spec.containers has no container; give it the one that trains",
            id="no container",
        ),
        pytest.param(
            {"containers": [{"name": "a" * 140_000, "image": "i" * 130_000}]}, None, id="too large beside the workers'"
        ),
    ],
)
def test_a_template_that_servers_cannot_have(fields: dict[str, Any], message: str | None) -> None:
    spec = {**template("2")["spec"], **fields}
    story = Story(*nodes(), job(server={"spec": spec}))
    story.settle()
    reason, told = pending(story)
    assert reason == "TemplateInvalid"
    assert told == message if message else "more than the 262144" in told


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"schedulerName": "mine"}, "its template names the scheduler mine"),
        (
            {"resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "nics"}]},
            "its template has ResourceClaims of its own",
        ),
    ],
)
def test_a_servers_template_that_no_scheduler_looks_at_keeps_no_gpus(more: dict[str, Any], words: str) -> None:
    server = template("2")
    story = Story(*nodes(), job(server={"spec": {**server["spec"], **more}}))
    story.settle()
    for name, each in zip((WORKER(0), WORKER(1)), booked_nodes(story), strict=True):
        story.change_pod(name, node=each.name, phase="Running")
    for _ in range(4):
        story.pass_time(30)
        story.settle()
    assert ended(story) == [(1, "Unschedulable", False)]
    told = story.status().attempts[0].message or ""
    assert told.startswith(f"no scheduler has looked at Pod {PS(0)} for 120 s: {words}")


def test_a_volume_that_is_being_made_for_a_server_keeps_no_gpus_for_long() -> None:
    story = Story(*nodes(), volume_claim(), storage_class(), job(server=claiming("data")))
    story.settle()
    for name, each in zip((WORKER(0), WORKER(1)), booked_nodes(story), strict=True):
        story.change_pod(name, node=each.name, phase="Running")
    story.add(volume_claim(selected_node="gpu-1"))
    for _ in range(4):
        story.pass_time(30)
        story.settle()
    assert (ended(story), pending(story)[0]) == ([(1, "ObjectMissing", False)], "VolumeUnavailable")
