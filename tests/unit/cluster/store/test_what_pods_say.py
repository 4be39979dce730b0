"""What a Pod says of itself holds nothing: labels, annotations, owners and affinity are anybody's to write."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.cluster.store.watched_kinds import ObjectChange, Stream, change, from_document
from scenarios.manifests import (
    Manifest,
    allocation,
    booked,
    node,
    node_topology,
    owner,
    resource_claim,
    resource_slice,
    training_job,
    uuids,
    worker,
)
from scenarios.views import cluster, view, words

BOOKED = training_job(placement=booked(("gpu-1", [0, 1]), binding="BestEffort"), attempt=2)
BASE = (node(), node_topology(), BOOKED)
ALL = uuids("gpu-1", *range(8))


def asking(gpus: int, cpu: int = 0) -> dict[str, str]:
    return {**({"nvidia.com/gpu": str(gpus)} if gpus else {}), "cpu": str(cpu)}


def held(*manifests: Manifest) -> tuple[int, int, int]:
    """How many GPUs, of the device plugin's count, and cores somebody has."""
    found = view(*manifests)
    assert found.plugin is not None
    assert found.spare is not None
    return len(found.usable) - len(found.free), found.plugin.requested, 128 - found.spare["cpu"] // 1000


NOT_THE_BOOKED = {
    "of a job that is not there": worker("gone", gpus=ALL, requests=asking(0)),
    "of the job's earlier namesake": worker(attempt=2, gpus=ALL, requests=asking(0), job_uid="uid-of-another"),
    "of an attempt that has ended": worker(gpus=ALL, requests=asking(0)),
    "of an attempt to come": worker(attempt=3, gpus=ALL, requests=asking(0)),
    "of no rank of the gang": worker(index=1, attempt=2, gpus=ALL, requests=asking(0)),
    "that asks for less than is booked": worker(attempt=2, gpus=ALL, requests=asking(0)),
}


@pytest.mark.parametrize("stranger", NOT_THE_BOOKED.values(), ids=NOT_THE_BOOKED.keys())
@pytest.mark.parametrize("place", [{"nodeName": "gpu-1"}, {"nodeName": None}], ids=["bound", "pinned"])
def test_a_pod_that_is_not_the_booked_one_holds_what_it_requests(stranger: Manifest, place: Manifest) -> None:
    pinned = worker(node=None, pin="gpu-1")["spec"]["affinity"]
    said = {**stranger, "spec": {**stranger["spec"], **place, "affinity": pinned}}
    assert held(*BASE, said) == held(*BASE) == (2, 2, 0)


def test_another_pod_with_the_labels_of_the_booked_one_does_not_stand_for_it() -> None:
    second = worker(attempt=2, gpus=ALL, requests=asking(2))
    second["metadata"]["name"] = "train-a2-worker-0000x"
    assert held(*BASE, second) == (2, 4, 0)


def test_the_booked_pod_holds_what_is_booked_whatever_its_labels() -> None:
    ours = worker(attempt=2, gpus=ALL, requests=asking(2, cpu=1))
    assert held(*BASE, ours) == (2, 2, 1)
    ours["metadata"]["labels"] = {}
    assert held(*BASE, ours) == (2, 2, 1)


LEFT = worker(requests=asking(2, cpu=4), node=None, pin="gpu-1")
NOT_LEFT = {
    "its job is being deleted": ({"deletionTimestamp": "2026-11-21T12:00:00Z"}, {}),
    "it is being deleted": ({}, {"deletionTimestamp": "2026-11-21T12:00:00Z"}),
    "its job is another": ({"uid": "another"}, {}),
    "its name is no child's": ({}, {"name": "train-1"}),
    "its attempt is to come": ({}, {"name": "train-a3-worker-00000"}),
}


@pytest.mark.parametrize("booking", [BOOKED, training_job(attempt=2)], ids=["booked again", "waiting"])
def test_a_pod_that_an_ended_attempt_has_left_unbound_holds_what_it_requests(booking: Manifest) -> None:
    without = held(*BASE[:2], booking)
    assert held(*BASE[:2], booking, LEFT) == (without[0], without[1] + 2, without[2] + 4)


@pytest.mark.parametrize(("of_job", "of_pod"), NOT_LEFT.values(), ids=NOT_LEFT.keys())
def test_any_other_unbound_pod_holds_nothing(of_job: Manifest, of_pod: Manifest) -> None:
    job = {**BOOKED, "metadata": {**BOOKED["metadata"], **of_job}}
    assert held(*BASE[:2], job, {**LEFT, "metadata": {**LEFT["metadata"], **of_pod}}) == (2, 2, 0)


def test_nobody_would_delete_what_a_job_that_cannot_be_read_has_left() -> None:
    broken = training_job(spec={"gpus": 70_000}, attempt=2)
    assert held(*BASE[:2], broken, LEFT) == (0, 0, 0)


def test_an_unbound_pod_counts_no_longer_when_its_job_is_gone() -> None:
    gone = cluster(*BASE, LEFT).after([ObjectChange(Stream.TRAINING_JOBS, ("team-b", "train"), None)])
    assert gone == cluster(*BASE[:2], LEFT)
    assert gone.nodes["gpu-1"].plugin == cluster(*BASE[:2]).nodes["gpu-1"].plugin
    job = from_document(training_job(attempt=1))
    assert job is not None
    again = gone.after([change(job)])
    assert again == cluster(*BASE[:2], LEFT, training_job(attempt=1))
    assert again.nodes["gpu-1"].plugin != gone.nodes["gpu-1"].plugin


def test_a_claim_under_a_name_of_ours_holds_what_it_was_given() -> None:
    claim = resource_claim("train-a2-worker-00000", ("gpu-1", 5), namespace="team-b", job="train")
    found = view(node(gpus=None), node_topology(), resource_slice(), claim)
    assert words(found.holders) == {5: "claim team-b/train-a2-worker-00000"}


@pytest.mark.parametrize("is_given", [False, True])
def test_a_pod_left_unbound_may_be_given_by_its_claim_any_gpu_that_is_free(is_given: bool) -> None:
    """Until it is deleted the scheduler may give it what was planned for it, whatever its attempt's end has freed."""
    left = worker(requests={}, node=None, pin="gpu-1", claims=["train-a1-worker-00000"])
    claim = resource_claim("train-a1-worker-00000", *([("gpu-1", 5)] if is_given else []), namespace="team-b")
    found = view(node(gpus=None), node_topology(), resource_slice(), training_job(attempt=2), left, claim)
    pod, given = "Pod team-b/train-a1-worker-00000", "claim team-b/train-a1-worker-00000"
    assert words(found.holders) == ({5: given} if is_given else dict.fromkeys(range(8), pod))


LATE = worker(requests={}, claims=["train-a1-worker-00000"])
NOBODYS = {
    "no attempt of its name has ended": ([training_job(attempt=1, placement=BOOKED["status"]["placement"])], LATE),
    "its job cannot be read": ([training_job(spec={"gpus": 70_000}, attempt=2)], LATE),
    "its claims are none of ours": ([training_job(attempt=2)], worker(requests={}, claims=["nic"])),
    "it is over": ([training_job(attempt=2)], {**LATE, "status": {"phase": "Failed"}}),
}


ANOTHER = training_job(attempt=1)
ANOTHER["metadata"]["uid"] = "another"


@pytest.mark.parametrize("jobs", [[training_job(attempt=2)], [ANOTHER], []], ids=["ended", "made again", "gone"])
@pytest.mark.parametrize("deleted", [{}, {"deletionTimestamp": "2026-11-21T12:00:00Z"}], ids=["", "deleted"])
def test_a_bound_pod_of_before_whose_claim_is_seen_late_may_have_any_gpu_that_is_free(
    jobs: list[Manifest], deleted: Manifest
) -> None:
    """The scheduler allocates a claim before it binds, and Pods and claims come by streams of their own."""
    machine = (node(gpus=None), node_topology(), resource_slice())
    late = {**LATE, "metadata": {**LATE["metadata"], **deleted}}
    assert words(view(*machine, *jobs, late).holders) == dict.fromkeys(range(8), "Pod team-b/train-a1-worker-00000")
    claim = resource_claim("train-a1-worker-00000", namespace="team-b")
    assert words(view(*machine, *jobs, late, claim).holders) == words(view(*machine, *jobs, late).holders)
    given = resource_claim("train-a1-worker-00000", ("gpu-1", 5), namespace="team-b")
    assert words(view(*machine, *jobs, late, given).holders) == {5: "claim team-b/train-a1-worker-00000"}


@pytest.mark.parametrize(("jobs", "pod"), NOBODYS.values(), ids=NOBODYS.keys())
def test_any_other_pod_whose_claim_is_not_seen_has_none(jobs: list[Manifest], pod: Manifest) -> None:
    found = view(node(gpus=None), node_topology(), resource_slice(), *jobs, pod)
    booked_ones = {0, 1} if jobs[0].get("status", {}).get("placement") else set()
    assert set(found.holders) == booked_ones


def test_a_node_follows_the_job_of_a_bound_pod_whose_claim_is_seen_late() -> None:
    """What a followed cluster shows is what one shows that is built from what is left."""
    rest = (node(gpus=None), node_topology(), resource_slice(), LATE)
    booked_now = training_job(attempt=1, placement=booked(("gpu-1", [0, 1])))
    before = cluster(*rest, booked_now)
    ended = from_document(training_job(attempt=2))
    assert ended is not None
    assert before.after([change(ended)]) == cluster(*rest, training_job(attempt=2)) != before
    gone = before.after([ObjectChange(Stream.TRAINING_JOBS, ("team-b", "train"), None)])
    assert gone == cluster(*rest) != before


NAMES = ["train-a1-worker-00000", "train-a2-worker-00000", "train-a2-worker-00001", "train-a3-worker-00000", "x"]
OWNERS = [
    owner("train", uid="uid-of-train"),
    owner("train", uid="nobody"),
    owner("gone", uid="uid-of-gone"),
    {**owner("train", uid="uid-of-train"), "apiVersion": "closeknit.dev/v9"},
    {**owner("train", uid="uid-of-train"), "kind": "Job"},
]


@st.composite
def said(draw: st.DrawFn) -> Manifest:
    """A Pod that says whatever is of use to it."""
    made = worker(
        node=draw(st.sampled_from(["gpu-1", "gpu-2", None])),
        pin=draw(st.sampled_from(["gpu-1", "gpu-2", None])),
        gpus=draw(st.lists(st.sampled_from(ALL), unique=True)),
        requests=asking(draw(st.integers(0, 3)), draw(st.integers(0, 3))),
        namespace=draw(st.sampled_from(["team-b", "other"])),
        phase=draw(st.sampled_from(["Pending", "Running", "Succeeded"])),
    )
    labels = made["metadata"]["labels"]
    labels["closeknit.dev/job"] = draw(st.sampled_from(["train", "gone", "x"]))
    labels["closeknit.dev/attempt"] = draw(st.sampled_from(["0", "1", "2", "3", "-", "9" * 99]))
    labels["closeknit.dev/index"] = draw(st.sampled_from(["0", "1", "99999", "-1", "٣"]))
    for name in draw(st.lists(st.sampled_from(sorted(labels)), unique=True)):
        del labels[name]
    made["metadata"]["ownerReferences"] = draw(st.lists(st.sampled_from(OWNERS), max_size=2))
    made["metadata"]["name"] = draw(st.sampled_from(NAMES))
    return made


def counted(manifests: Sequence[Manifest], resource: str) -> int:
    return sum(int(each["spec"]["containers"][0]["resources"]["requests"].get(resource, 0)) for each in manifests)


@settings(max_examples=300, deadline=None)
@given(
    pods=st.lists(said(), max_size=4, unique_by=lambda pod: (pod["metadata"]["namespace"], pod["metadata"]["name"])),
    told=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(ALL)), max_size=3),
)
def test_no_node_is_held_beyond_what_is_booked_requested_and_told(pods: list[Any], told: list[Any]) -> None:
    report = node_topology(allocations=[allocation("team-b", name, [uuid]) for name, uuid in told])
    gpus, count, cores = held(BASE[0], report, BOOKED, *pods)
    live = [pod for pod in pods if pod["status"]["phase"] != "Succeeded"]
    bound = [pod for pod in live if pod["spec"].get("nodeName") == "gpu-1"]
    own = [pod for pod in live if "nodeName" not in pod["spec"] and OWNERS[0] in pod["metadata"]["ownerReferences"]]
    requested = counted([*bound, *own], "nvidia.com/gpu")
    assert gpus <= 2 + requested + len({uuid for _, uuid in told})
    assert counted(bound, "nvidia.com/gpu") <= count <= 2 + requested
    assert counted(bound, "cpu") <= cores <= counted([*bound, *own], "cpu")
