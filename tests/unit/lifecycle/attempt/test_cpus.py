"""CPUs of their own for trainers whose template leaves them open, where the kubelet puts them beside their GPUs."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import booking
from closeknit.cluster.node.cpu_share import cpu_share_milli
from closeknit.launch.environment.environment import environment
from closeknit.launch.gang import Gang
from closeknit.lifecycle.attempt.launched_gang import gang
from closeknit.lifecycle.writes.resource_quotas import Quota
from scenarios.manifests import node, node_topology, resource_slice, training_job
from scenarios.stories import ended, unschedulable
from scenarios.story import Story

MEMORY = {"limits": {"memory": "64Gi"}}


def started(
    resources: dict[str, Any] = MEMORY,
    *,
    policy: str | None = "restricted",
    cpu_manager: str | None = None,
    memory_manager: str | None = None,
    dra: bool = False,
    whole: dict[str, Any] | None = None,
    before: list[dict[str, Any]] | None = None,
    quotas: Sequence[Quota] = (),
    forbidden: str = "",
    made: type[Story] = Story,
) -> Story:
    """A job of four of eight GPUs on a node of 128 CPUs."""
    topology = node_topology("gpu-1")
    policies = {"topologyManager": policy, "cpuManager": cpu_manager, "memoryManager": memory_manager}
    told = {f"{manager}Policy": text for manager, text in policies.items() if text is not None}
    topology["spec"]["capabilities"] = told
    container = {"name": "trainer", "image": "i", "resources": resources}
    template = {"spec": {"containers": [container], "initContainers": before or [], "resources": whole}}
    spec = {"gpus": 4, "gpu": {"binding": "DRA" if dra else "BestEffort"}, "template": template}
    slices = [resource_slice("gpu-1", range(8))] if dra else []
    story = made(node("gpu-1", gpus=None if dra else 8), topology, *slices, training_job(spec=spec))
    story.quotas = list(quotas)
    if forbidden:
        story.forbidden["train-a1-worker-00000"] = forbidden
    story.settle()
    return story


def cpus(story: Story, attempt: int = 1) -> tuple[Any, Any, Any]:
    """Request, limit, and threads of the trainer."""
    (container,) = story.pod(f"train-a{attempt}-worker-00000")["spec"]["containers"]
    asked = container["resources"]
    threads = {entry["name"]: entry["value"] for entry in container["env"]}.get("OMP_NUM_THREADS")
    return asked.get("requests", {}).get("cpu"), asked.get("limits", {}).get("cpu"), threads


def test_they_go_with_the_gpus_and_threads_with_them() -> None:
    story = started()
    assert cpus(story) == ("48", "48", "12")  # three quarters of half of 128
    (container,) = story.pod("train-a1-worker-00000")["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == "64Gi"


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param({"policy": None}, (None, None, None), id="nobody knows what the kubelet does"),
        pytest.param({"policy": "none"}, (None, None, None), id="it aligns nothing"),
        pytest.param({"cpu_manager": "none"}, (None, None, None), id="it gives no CPU to anybody alone"),
        pytest.param({"cpu_manager": "static"}, ("48", "48", "12"), id="it does"),
        pytest.param({"dra": True}, (None, None, None), id="it knows nothing of devices that claims bind"),
        pytest.param(
            {"resources": {"limits": {"cpu": "8", "memory": "64Gi"}}}, (None, "8", "2"), id="the template says"
        ),
        pytest.param({"resources": {"requests": {"cpu": "8"}}}, ("8", None, "2"), id="the template asks"),
        pytest.param({"resources": {}}, (None, None, None), id="without a limit of memory no CPU is its own"),
        pytest.param(
            {"resources": {"requests": {"memory": "8Gi"}, **MEMORY}}, (None, None, None), id="or with another request"
        ),
        pytest.param({"before": [{"name": "fetch"}]}, (None, None, None), id="of all"),
        pytest.param({"whole": {"limits": {"cpu": "8"}}}, (None, None, "2"), id="the Pod as a whole has some"),
    ],
)
def test_otherwise_they_are_left_open(case: dict[str, Any], expected: tuple[Any, Any, Any]) -> None:
    assert cpus(started(**case)) == expected


def test_once_a_scheduler_has_refused_it_goes_without() -> None:
    """Others hold the CPUs: the job ran before without asking for them."""
    story = started()
    refused = unschedulable("0/1 nodes are available: 1 Insufficient cpu.")
    story.change_pod("train-a1-worker-00000", conditions=[refused])
    story.pass_time(31)
    story.settle()
    assert ended(story) == [(1, "Unschedulable", False)]
    story.pass_time(601)  # the node is avoided for a while
    story.settle()
    assert cpus(story, attempt=2) == (None, None, None)


def test_where_a_quota_has_less_it_goes_without() -> None:
    """What the template leaves open is not to keep it waiting."""
    story = started(quotas=[Quota("cpus", {"requests.cpu": "32"}, {"requests.cpu": "0"})])
    assert cpus(story) == (None, None, None)
    assert story.status().pending is None


def test_an_operator_that_was_restarted_finds_that_out_before_it_writes() -> None:
    story = started(quotas=[Quota("cpus", {"requests.cpu": "32"}, {"requests.cpu": "0"})])
    story.run_all()
    story.settle()
    story.answers.clear()
    story.remove_pod("train-a1-worker-00000")
    before = len(story.written)
    story.settle()
    assert story.written[before:] == [
        "status Starting", "delete Service train-a1", "create Service train-a2", "create Pod train-a2-worker-00000"
    ]  # fmt: skip
    assert cpus(story, attempt=2) == (None, None, None)


def test_they_are_asked_for_again_where_without_them_it_is_refused_as_well() -> None:
    """A quota of CPUs takes no Pod that asks for none."""
    words = "train-a1-worker-00000 is forbidden: failed quota: cpus: must specify requests.cpu for: trainer"
    story = started(quotas=[Quota("cpus", {"requests.cpu": "32"}, {"requests.cpu": "0"})], forbidden=words)
    assert story.pods() == []
    story.quotas, story.forbidden = [], {}
    story.pass_time(600)
    story.settle()
    assert cpus(story) == ("48", "48", "12")


class Limited(Story):
    """A LimitRange admits 32 CPUs for a container."""

    def denial(self, manifest: Mapping[str, Any]) -> str | None:
        containers = manifest["spec"].get("containers", [])
        if any(int(each["resources"].get("limits", {}).get("cpu", "0")) > 32 for each in containers):
            return "maximum cpu usage per Container is 32, but limit is 48"
        return super().denial(manifest)


def test_where_a_limit_range_refuses_them_it_goes_without() -> None:
    assert cpus(started(made=Limited)) == (None, None, None)


def test_what_refuses_its_pod_for_something_else_takes_no_cpus_from_it() -> None:
    story = started(forbidden="train-a1-worker-00000 is forbidden: no")
    story.forbidden.clear()
    story.pass_time(600)
    story.settle()
    assert cpus(story) == ("48", "48", "12")


def test_a_share_of_less_than_one_for_each_rank_is_none() -> None:
    assert (
        cpu_share_milli(128_000, 8, 8),
        cpu_share_milli(10_700, 8, 8),
        cpu_share_milli(10_600, 8, 8),
        cpu_share_milli(0, 1, 0),
    ) == (96, 8, None, None)


OWN = {"limits": {"cpu": "8", "memory": "64Gi"}}
STATIC: dict[str, Any] = {"cpu_manager": "static", "resources": OWN}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        pytest.param(STATIC, None, id="they are its own"),
        pytest.param({"resources": OWN}, None, id="nobody tells"),
        pytest.param(STATIC | {"policy": None}, None, id="nobody tells whether they are beside its GPUs"),
        pytest.param(
            {"cpu_manager": "none", "resources": OWN},
            "resources.limits.cpu=8: on gpu-1 the CPU manager is none: its CPUs are shared with others, on any NUMA "
            "node; have an administrator set cpuManagerPolicy: static and topologyManagerPolicy: restricted",
            id="nobody has any",
        ),
        pytest.param(
            STATIC | {"resources": {"limits": {"cpu": "7500m", "memory": "64Gi"}}},
            "resources.limits.cpu=7.5: on gpu-1 no CPU is its own: a static CPU manager gives whole ones; ask for 8",
            id="a broken number",
        ),
        pytest.param(
            STATIC | {"dra": True},
            "resources.limits.cpu=8: on gpu-1 its CPUs are its own, but on any NUMA node: a Topology Manager knows "
            "nothing of GPUs that claims bind",
            id="GPUs by claims",
        ),
        pytest.param(
            STATIC | {"policy": "none"},
            "resources.limits.cpu=8: on gpu-1 its CPUs are its own, but on any NUMA node: the Topology Manager's "
            "policy is none; have an administrator set topologyManagerPolicy: restricted",
            id="nothing is aligned",
        ),
        pytest.param({"cpu_manager": "none", "resources": {"limits": {"cpu": "8"}}}, None, id="it asks for none"),
    ],
)
def test_what_a_kubelet_does_not_promise_is_told(case: dict[str, Any], words: str | None) -> None:
    """Whoever asks for whole CPUs with a bound of memory wants them for himself."""
    found = started(**case).status().environment
    told = [] if found is None else found.warnings
    assert told == ([] if words is None else [words])


@pytest.mark.parametrize(
    ("case", "promise"),
    [
        ({}, ""),
        ({"cpu_manager": "static"}, "; they are its own, on the NUMA nodes of its GPUs"),
        (
            {"cpu_manager": "static", "memory_manager": "Static"},
            "; they and its memory are its own, on the NUMA nodes of its GPUs",
        ),
        (STATIC, "; they are its own, on the NUMA nodes of its GPUs"),
        (STATIC | {"policy": "none"}, ""),
        ({"cpu_manager": "static", "resources": {"limits": {"cpu": "8"}}}, ""),
    ],
)
def test_what_it_promises_stands_beside_the_threads(case: dict[str, Any], promise: str) -> None:
    cluster = started(**case).cluster
    (job,) = cluster.jobs.values()
    held = booking(job)
    assert isinstance(job, TrainingJob) and held is not None
    made = gang(job, held, cluster, ipc_lock=True)
    assert isinstance(made, Gang)
    found = environment(made, 0).variables
    (why,) = [each.why for each in found if each.name == "OMP_NUM_THREADS"]
    assert why == f"the container's CPUs divided by its ranks{promise}"
