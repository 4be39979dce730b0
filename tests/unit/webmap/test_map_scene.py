"""What the map shows of a cluster, to whom, and what of it goes over the wire when something changes."""

import json
import random
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from closeknit.api.names import SPARE_FOR_LABEL, JobKey
from closeknit.api.trainingjob import Parallelism
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.watched_kinds import ObjectChange, Stream
from closeknit.placement.ranks.coordinates import coordinates
from closeknit.webmap import scene as scenes
from closeknit.webmap.frames import FRAME_BYTES, OPEN, Veil, frames
from closeknit.webmap.job_rows import axes, job_row
from closeknit.webmap.queue_edits import edits
from closeknit.webmap.scene import EMPTY_SCENE, Scene, scene
from harness.map_stage import eight, machine, thousand
from scenarios.clusters import wanted
from scenarios.manifests import (
    booked,
    cluster_topology,
    cut,
    mig_slice,
    node,
    node_topology,
    pod,
    priority_class,
    training_job,
)
from scenarios.stories import end_trainer, two_plugin_nodes
from scenarios.story import NOW, Story, dra_node

SEES_B = Veil(frozenset({"team-b"}))


def drawn(story: Story, before: Scene = EMPTY_SCENE) -> Scene:
    return scene(story.cluster.at(story.now), None, story.now, "0.1", before)


def messages(old: Scene | None, new: Scene, veil: Veil = OPEN) -> list[dict[str, Any]]:
    found = frames(old, new, veil, NOW)
    assert all(each.startswith(b"data: ") and each.endswith(b"\n\n") and each.count(b"\n") == 2 for each in found)
    return [json.loads(each[6:]) for each in found]


def whole(new: Scene, veil: Veil = OPEN) -> dict[str, Any]:
    (message,) = messages(None, new, veil)
    return message


def held() -> Story:
    """A job of team-b on gpu-1, one of team-a on half of gpu-2, and one of team-a that waits."""
    status: dict[str, Any] = {"state": "Running", "attempt": 1}
    half, large = {"gpus": 4}, {"gpus": 64}
    two = booked(("gpu-2", range(4)), binding="DRA")
    waits = {"reason": "InsufficientGPUs", "message": "needs 64 GPUs", "since": "2026-11-21T09:30:00Z"}
    told = {key: waits[key] for key in ("reason", "message")}
    return Story(
        *dra_node("gpu-1"),
        *dra_node("gpu-2"),
        training_job("one", spec={"gpus": 8}, placement=booked(("gpu-1", range(8)), binding="DRA"), **status),
        training_job("two", namespace="team-a", spec=half, placement=two, **status),
        training_job("three", namespace="team-a", spec=large, state="Queued", pending=waits, **told),
    )


def test_nodes_gpus_and_their_holders() -> None:
    told = whole(drawn(held()))
    assert told["nodes"]["gpu-1"]["held"] == {"team-b/one": list(range(8))}
    assert told["nodes"]["gpu-2"]["held"] == {"team-a/two": [0, 1, 2, 3]}
    assert told["nodes"]["gpu-2"]["free"] == [4, 5, 6, 7]
    assert told["totals"]["gpus"] == {"free": 4, "held": 12, "mig": 0, "unusable": 0, "excluded": 0}
    assert (told["queue"], told["hidden"]) == ([[0, 0, ["team-a/three"]]], 0)


def test_a_job_tells_its_ranks_and_why_it_waits() -> None:
    told = whole(drawn(held()))["jobs"]
    assert told["team-b/one"]["shares"] == [["gpu-1", list(range(8)), 0, ""]]
    waits = told["team-a/three"]
    assert (waits["reason"], waits["message"]) == ("InsufficientGPUs", "needs 64 GPUs")
    assert waits["nextStep"].startswith("wait for GPUs to become free")
    assert waits["spans"] == [["waiting", 1795253400, None, ""]]


def test_who_may_not_list_jobs_sees_numbers_and_no_names() -> None:
    told = whole(drawn(held()), SEES_B)
    assert list(told["jobs"]) == ["team-b/one"]
    assert told["nodes"]["gpu-2"]["held"] == {"?": [0, 1, 2, 3]}
    assert (told["queue"], told["hidden"]) == ([[0, 0, [1]]], 2)
    assert told["totals"]["jobs"] == {"Queued": 1, "Running": 2}
    text = json.dumps(whole(drawn(held()), Veil(frozenset())))
    assert [word for word in ("team-a", "team-b", "two", "three", '"one"') if word in text] == []


def test_the_name_of_a_pod_or_claim_that_holds_gpus_is_told_to_nobody() -> None:
    story = Story(node("gpu-1"), node_topology("gpu-1"), pod("secret-notebook", namespace="hidden-team"))
    text = json.dumps(whole(drawn(story)))
    assert "secret-notebook" not in text
    assert "hidden-team" not in text


def test_only_what_has_changed_is_told() -> None:
    story = held()
    first = drawn(story)
    again = drawn(story, first)
    assert frames(first, again, OPEN, NOW) == ()
    del story.objects["TrainingJob", "team-a", "two"]
    (message,) = messages(first, drawn(story, first))
    assert message["jobs"] == {"team-a/two": None}
    assert list(message["nodes"]) == ["gpu-2"]
    assert "reset" not in message
    (veiled,) = messages(first, drawn(story, first), SEES_B)
    assert "jobs" not in veiled
    assert veiled["hidden"] == 1


def after_all(told: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """What a reader has after these messages."""
    has: dict[str, Any] = {"nodes": {}, "jobs": {}, "machines": {}, "queue": []}
    for message in told:
        for section, value in message.items():
            if section in {"nodes", "jobs", "machines"}:
                has[section] |= value
                has[section] = {key: row for key, row in has[section].items() if row is not None}
            elif section == "queue":
                for place, gone, come in value:
                    has["queue"][place : place + gone] = keys(come)
            elif section not in {"now", "reset", "more"}:
                has[section] = value
    return has


def keys(come: list[str | int]) -> list[str]:
    return [key for each in come for key in ([each] if isinstance(each, str) else ["?"] * each)]


@pytest.mark.parametrize("veil", [OPEN, SEES_B, Veil(frozenset({"team-a"}))])
def test_changes_lead_to_what_is_drawn_at_once(veil: Veil) -> None:
    story = two_plugin_nodes(restart={"limit": 3})
    told: list[dict[str, Any]] = []
    last: Scene | None = None

    def look() -> None:
        nonlocal last
        new = drawn(story, last or EMPTY_SCENE)
        told.extend(messages(last, new, veil))
        last = new

    look()
    for step in (story.settle, story.run_all, story.settle, lambda: end_trainer(story, 1), story.settle):
        step()
        story.pass_time(10)
        look()
    for each in dra_node("gpu-9"):
        story.add(each)
    look()
    del story.objects["Node", "", "gpu-2"], story.objects["NodeTopology", "", "gpu-2"]
    look()
    told_at_once, told_in_steps = after_all(iter([whole(drawn(story), veil)])), after_all(iter(told))
    for each in (told_at_once, told_in_steps):
        each["totals"].pop("told")
    kinds = {row["machine"] for row in told_at_once["nodes"].values() if "machine" in row}
    told_in_steps["machines"] = {key: told_in_steps["machines"][key] for key in kinds}
    assert told_in_steps == told_at_once


@pytest.fixture(scope="module")
def large() -> Cluster:
    return thousand(300, 60)


def test_kueueviz_no_frame_is_larger_than_its_bound(large: Cluster) -> None:
    parts = frames(None, scene(large, None, NOW, "0.1", EMPTY_SCENE), OPEN, NOW)
    assert len(parts) > 1 or len(parts[0]) < FRAME_BYTES
    assert max(map(len, parts)) <= FRAME_BYTES + 1000
    more = [json.loads(each[6:]).get("more", False) for each in parts]
    assert more == [True] * (len(parts) - 1) + [False]


def long_queue(jobs: int) -> tuple[JobKey, ...]:
    return tuple(JobKey(f"team-{n % 40:02d}-research", f"train-llama-sweep-{n:06d}") for n in range(jobs))


@pytest.mark.parametrize("veil", [OPEN, Veil(frozenset()), Veil(frozenset({"team-01-research", "team-02-research"}))])
def test_a_long_queue_comes_in_parts_and_then_only_what_has_changed(veil: Veil) -> None:
    queue = long_queue(20_000)
    old, new = Scene(queue=queue), Scene(queue=(*queue[1:15_000], queue[0], *queue[15_001:], JobKey("team-01", "new")))
    first, then = frames(None, old, veil, NOW), frames(old, new, veil, NOW)
    assert max(map(len, first)) <= FRAME_BYTES + 1000
    assert sum(map(len, then)) < 300
    told = after_all(iter(messages(None, old, veil) + messages(old, new, veil)))
    assert told["queue"] == [str(key) if veil.shows(key.namespace) else "?" for key in new.queue]


@pytest.mark.parametrize("seed", range(200))
def test_edits_lead_from_one_queue_to_the_next(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    all_jobs = long_queue(chance.randrange(14))
    old, new = (tuple(chance.sample(all_jobs, chance.randrange(len(all_jobs) + 1))) for _ in range(2))
    new = tuple(key for key in old if chance.random() < 0.8) if seed % 2 else new
    found = list(old)
    told = edits(old, new)
    for edit in told:
        found[edit.place : edit.place + edit.gone] = edit.come
    assert tuple(found) == new
    if seed % 2:
        assert sum(len(edit.come) for edit in told) == 0


def test_a_job_whose_row_would_be_too_large_goes_without_its_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenes, "ROW_BYTES", 100)
    row = whole(drawn(held()))["jobs"]["team-b/one"]
    assert "shares" not in row
    assert row["nodes"] == 1


def test_words_of_tenants_are_cut_and_stay_data() -> None:
    words = "</script><img src=x onerror=alert(1)>\n\ndata: {}" + "x" * 4000
    status = {"reason": "InsufficientGPUs", "message": words, "since": "2026-11-21T09:30:00Z", "nearest": [words] * 16}
    story = Story(*dra_node("gpu-1"), training_job(state="Queued", message=words, pending=status))
    row = whole(drawn(story))["jobs"]["team-b/train"]
    assert len(row["message"]) == 2000
    assert len(row["nearest"]) == 5


def test_what_has_not_changed_is_not_drawn_again(large: Cluster) -> None:
    first = scene(large, None, NOW, "0.1", EMPTY_SCENE)
    again = scene(large.at(NOW + timedelta(seconds=1)), None, NOW, "0.1", first)
    assert all(again.nodes[name] is node for name, node in first.nodes.items())
    assert all(again.jobs[key] is job for key, job in first.jobs.items())


def test_a_mistake_about_one_job_costs_that_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(job: Any, cluster: Any) -> Any:
        if job.key.name == "one":
            raise RuntimeError("a mistake")
        return job_row(job, cluster)

    monkeypatch.setattr(scenes, "job_row", broken)
    found = drawn(held())
    assert found.faults == 1
    assert whole(found)["jobs"]["team-b/one"] == {"namespace": "team-b", "name": "one", "state": "Running"}
    assert "shares" in whole(found)["jobs"]["team-a/two"]


@pytest.mark.parametrize(
    "degrees",
    [{"tensor": 4, "pipeline": 2}, {"tensor": 2, "context": 2, "pipeline": 2}, {"tensor": 2, "expert": 4}, {}],
)
def test_axes_are_those_of_the_coordinates(degrees: dict[str, int]) -> None:
    found = axes(32, Parallelism(**degrees))
    for rank in range(32):
        told = coordinates(rank, wanted(gpus=32, parallelism=degrees))._asdict()
        mine = {name: rank // stride % size for name, size, stride in ((a.name, a.size, a.stride) for a in found)}
        assert mine == {name: told[name] for name in mine}
        assert not any(told[name] for name in told.keys() - mine.keys())


def test_the_axes_of_an_elastic_job_are_those_of_the_gpus_that_it_holds() -> None:
    spec = {"gpus": 16, "elastic": {"minGPUs": 8}, "parallelism": {"tensor": 4}}
    placed = booked(("gpu-1", range(8)), binding="DRA")
    story = Story(*dra_node("gpu-1"), training_job(spec=spec, state="Running", attempt=1, placement=placed))
    row = whole(drawn(story))["jobs"]["team-b/train"]
    assert (row["gpus"], row["axes"]) == (16, [["tensor", 4, 1], ["data", 2, 4]])


def test_the_phases_of_a_job_that_has_ended_and_begun_again() -> None:
    story = two_plugin_nodes(restart={"limit": 3})
    story.pass_time(60)
    story.settle()
    story.pass_time(20)
    story.run_all()
    story.settle()
    story.pass_time(600)
    end_trainer(story, 1)
    story.settle()
    for name in story.pods():
        story.remove_pod(name)
    story.settle()
    story.pass_time(45)
    story.settle()
    story.run_all()
    story.settle()
    spans = whole(drawn(story))["jobs"]["team-b/train"]["spans"]
    phases = [span[0] for span in spans]
    assert phases[:3] == ["waiting", "starting", "running"]
    assert spans[2][2] - spans[2][1] == 600
    for before, after in pairwise(spans):
        assert before[2] <= after[1]


def test_the_lost_node_of_a_gang_is_marked_and_the_rest_is_held() -> None:
    told = whole(drawn(eight()))
    shares = {share[0]: share[3] for share in told["jobs"]["team-llm/mixtral"]["shares"]}
    assert shares["gpu-04"] == "Lost"
    assert told["nodes"]["gpu-04"]["excluded"] == "NotReady"
    assert JobKey("team-llm", "mixtral") in drawn(eight()).queue
    assert told["jobs"]["team-vision/diffusion"]["nearest"]
    assert told["nodes"]["gpu-05"]["unusable"] == {"5": "unhealthy: XID79"}


def test_nodes_that_are_lent_are_told_as_long_as_they_are() -> None:
    """Nothing is written of a borrower when their owner ends."""
    high = {"gpus": 8, "priorityClassName": "high", "spares": 1}
    story = Story(*dra_node("gpu-1"), *dra_node("gpu-2"), priority_class("high", 100), training_job("owner", spec=high))
    story.settle()
    story.add(training_job("low", spec={"gpus": 8}))
    story.settle()
    cluster = story.cluster.at(story.now)
    lent = scene(cluster, None, story.now, "0.1", EMPTY_SCENE)
    jobs = whole(lent)["jobs"]
    assert (jobs["team-b/owner"]["spares"], jobs["team-b/low"]["lent"]) == (["gpu-2"], ["gpu-2"])
    gone = cluster.after([ObjectChange(Stream.TRAINING_JOBS, ("team-b", "owner"), None)])
    own = scene(gone, None, story.now, "0.1", lent)
    assert "lent" not in whole(own)["jobs"]["team-b/low"]


def test_nodes_that_a_queue_lends_are_told_but_for_its_own_jobs() -> None:
    high = {"gpus": 8, "priorityClassName": "high", "queue": "research"}
    story = Story(*dra_node("gpu-1"), *dra_node("gpu-2"), priority_class("high", 100), training_job("owner", spec=high))
    story.objects["Node", "", "gpu-2"]["metadata"]["labels"][SPARE_FOR_LABEL] = "research"
    story.settle()
    story.add(training_job("low", spec={"gpus": 8}))
    story.settle()
    lent = scene(story.cluster.at(story.now), None, story.now, "0.1", EMPTY_SCENE)
    assert whole(lent)["jobs"]["team-b/low"]["lent"] == ["gpu-2"]
    story.edit_job("low", queue="research")
    own = scene(story.cluster.at(story.now), None, story.now, "0.1", lent)
    assert "lent" not in whole(own)["jobs"]["team-b/low"]


def test_links_that_are_down_are_not_drawn() -> None:
    told = whole(drawn(eight()))
    healthy, broken = (told["machines"][told["nodes"][name]["machine"]] for name in ("gpu-06", "gpu-07"))
    assert [0, 3] in [link[:2] for link in healthy["links"]]
    assert [0, 3] not in [link[:2] for link in broken["links"]]


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: [nic.update(name=f"other_{nic['name']}") for nic in spec["nics"]],
        lambda spec: spec["nvlink"].update(linkBandwidthGBps=99.0),
        lambda spec: [gpu.update(product="Another") for gpu in spec["gpus"]],
    ],
)
def test_machines_that_are_drawn_otherwise_are_of_another_kind(change: Any) -> None:
    """Also those between which placement sees no difference."""
    one, other, same = (machine(name, "hgx-h200", "r1") for name in ("n1", "n2", "n3"))
    for gpu in other[1]["spec"]["gpus"]:
        gpu.pop("linkBandwidthGBps", None)
    change(other[1]["spec"])
    story = Story(cluster_topology("block", "rack"), *one, *other, *same)
    told = whole(drawn(story))
    kinds = {name: row["machine"] for name, row in told["nodes"].items()}
    assert kinds["n1"] == kinds["n3"] != kinds["n2"]
    assert told["machines"][kinds["n1"]] != told["machines"][kinds["n2"]]


def test_a_gpu_that_is_cut_shows_its_mig_devices_and_whose_they_are() -> None:
    """To a reader who may not list a job, a device is held by somebody."""
    one, other = ({"gpus": 1, "gpu": {"mig": "1g.18gb"}} for _ in range(2))
    story = Story(
        node("gpu-1", gpus=None),
        cut(node_topology("gpu-1", count=2), 0, count=3),
        mig_slice("gpu-1", count=3),
        training_job("one", spec=one),
        training_job("two", namespace="team-a", spec=other),
    )
    story.settle()
    told = whole(drawn(story))
    assert told["totals"]["gpus"] == {"free": 0, "held": 0, "mig": 1, "unusable": 1, "excluded": 0}
    found = told["nodes"]["gpu-1"]["mig"]
    assert [(gpu, profile) for gpu, profile, *_ in found] == [(0, "1g.18gb")] * 3
    assert sorted(who for _, _, who, _ in found) == ["", "team-a/two", "team-b/one"]
    seen = whole(drawn(story), SEES_B)["nodes"]["gpu-1"]["mig"]
    assert sorted(who for _, _, who, _ in seen) == ["", "?", "team-b/one"]
    assert "team-a" not in json.dumps(whole(drawn(story), SEES_B))
