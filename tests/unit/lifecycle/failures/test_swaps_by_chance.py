"""Gangs that restart in place under whatever comes: nodes that die, drain and come back, Pods that go, operators that
forget. In the end they run, on nodes that are well, and hold nothing else.
"""

import json
from random import Random

import pytest

from closeknit.api.names import BARRIER_CONTAINER, child_named
from closeknit.api.trainingjob_status import State
from closeknit.cluster.objects.silence import Quiet
from scenarios.restarting_gangs import allow, begins, fails_at_barrier, running
from scenarios.stories import ended, nodes
from scenarios.story import Story, plugin_node

RANKS = 3


def kubelets(story: Story) -> None:
    """What the scheduler, the kubelets and the sidecars of all nodes that are well do by and by."""
    story.run_all()
    for name in story.pods():
        pod = story.pod(name)
        if pod["spec"].get("nodeName") in story.dead:
            continue
        if "deletionTimestamp" in pod["metadata"]:
            story.remove_pod(name)
        elif pod["spec"].get("activeDeadlineSeconds") == 1 and pod["status"]["phase"] in {"Pending", "Running"}:
            story.change_pod(name, phase="Failed", reason="DeadlineExceeded")
    gang = members(story)
    if all("-r" in name or run_of(story, name) is not None for name in gang):
        waiting = [name for name in gang if run_of(story, name) is None]
        if waiting and len(gang) == RANKS:
            newest = max((run_of(story, name) or 0 for name in gang), default=0)
            for name in gang:
                begins(story, name, newest + 1)
    for name in gang:
        if "-r" not in name and run_of(story, name) is None:
            begins(story, name, 0)


def members(story: Story) -> list[str]:
    """Pods of the current attempt that run, or are to, and that are in its Service."""
    found = []
    for name in story.pods():
        pod, child = story.pod(name), child_named(name)
        is_there = pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in story.dead
        is_live = pod["status"]["phase"] in {"Pending", "Running"} and "deletionTimestamp" not in pod["metadata"]
        is_named = pod["metadata"]["labels"]["closeknit.dev/attempt"] == str(story.status().attempt)
        if child is not None and is_there and is_live and is_named:
            found.append(name)
    return found


def run_of(story: Story, pod: str) -> int | None:
    for each in story.pod(pod)["status"].get("initContainerStatuses", ()):
        if each["name"] == BARRIER_CONTAINER and "terminated" in each["state"]:
            return int(json.loads(each["state"]["terminated"]["message"])["run"])
    return None


def happens(story: Story, random: Random) -> None:
    """One thing goes wrong, or well."""
    pods, there = story.pods(), [name for kind, _, name in story.objects if kind == "Node"]
    pod, node = random.choice(pods) if pods else "", random.choice(there)
    match random.randrange(8):
        case 0 | 1:
            story.lose_node(node)
            story.silence(node, Quiet.LONG)
        case 2 if story.dead:
            back = random.choice(sorted(story.dead))
            story.recover_node(back)
            story.silent.pop(back, None)
        case 3 if pod:
            story.mark_deleted(pod, grace_s=30)
        case 4 if pod and story.pod(pod)["spec"].get("nodeName") not in story.dead:
            story.remove_pod(pod)
        case 5 if pod and story.pod(pod)["status"]["phase"] in {"Pending", "Running"}:
            fails_at_barrier(story, pod)
        case 6:
            story.answers.clear()
        case _:
            story.pass_time(random.choice((1, 12, 40)))


@pytest.mark.parametrize("seed", range(8))
def test_in_the_end_it_runs_on_nodes_that_are_well(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - chance that can be repeated
    story = running(nodes=6, restart={"limit": 900})
    for _ in range(12):
        happens(story, random)
        for _ in range(random.randrange(3)):
            story.write_once()  # as one operator that forgets all after each decision
        if random.random() < 0.5:
            kubelets(story)
    for number in range(4):
        for manifest in plugin_node(f"new-{number}"):
            story.add(manifest)
    allow(story)
    for _ in range(60):
        story.settle()
        if story.status().state is State.RUNNING and not set(nodes(story)) & story.dead:
            break
        story.pass_time(20)
        kubelets(story)
    status = story.status()
    assert status.state is State.RUNNING, (status.state, status.message, ended(story), story.pods())
    assert status.placement is not None
    assert (status.placement.swapping, status.placement.lost) == (None, None)
    held = nodes(story)
    assert len(held) == len(set(held)) == RANKS
    assert not set(held) & story.dead
    assert len(members(story)) == RANKS
    assert {story.pod(name)["spec"]["nodeName"] for name in members(story)} == set(held)
    assert len({run_of(story, name) for name in members(story)}) == 1
