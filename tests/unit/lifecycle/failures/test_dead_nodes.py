"""A dead node is known by evidence in time, and no blip is taken for a death."""

import random
from collections.abc import Mapping

import pytest

from closeknit.cluster.objects.silence import POLL_S, Quiet, SignsOfLife, Silence, renewal
from closeknit.cluster.pods.gang_runs import GangLink
from closeknit.lifecycle.failures.dead_nodes import TABLE, Evidence, NodeState, evidence, judged
from scenarios.manifests import training_job
from scenarios.story import Story, plugin_node

RENEW_S, MONITOR_S = 10.0, 50.0
OTHERS = {f"well-{number}": 0.0 for number in range(3)}
STATES = {
    (link, quiet, ready): judged(Evidence(True, False, ready, quiet, link)).state
    for link in GangLink
    for quiet in (None, *Quiet)
    for ready in (True, False)
}


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same lives every time


def test_the_table() -> None:
    alive, blip, silent, dead = NodeState.ALIVE, NodeState.BLIP, NodeState.SILENT, NodeState.DEAD
    whole, broken, waiting, unknown = GangLink.WHOLE, GangLink.BROKEN, GangLink.WAITING, GangLink.UNKNOWN
    expected: dict[tuple[GangLink, Quiet | None, bool], NodeState] = {
        **{(link, None, True): alive for link in GangLink},
        **{(link, None, False): blip for link in GangLink},
        **{(whole, quiet, ready): blip for quiet in Quiet for ready in (True, False)},
        **{(link, Quiet.OVERDUE, ready): silent for link in (broken, waiting, unknown) for ready in (True, False)},
        **{
            (link, quiet, ready): dead
            for link in (broken, waiting)
            for quiet in (Quiet.SILENT, Quiet.LONG)
            for ready in (True, False)
        },
        **{(unknown, Quiet.SILENT, ready): silent for ready in (True, False)},
        (unknown, Quiet.LONG, True): silent,
        (unknown, Quiet.LONG, False): dead,
    }
    assert expected == STATES
    assert judged(Evidence(True, True, True, None, whole)).state is dead
    assert evidence(None, whole).is_there is False
    assert judged(evidence(None, whole)).state is dead
    assert {row.state for row in TABLE} == {*NodeState}


def first_dead(
    chance: random.Random, silent_from_s: float, silent_for_s: float, link: GangLink, *, is_ready_late: bool = True
) -> float | None:
    """When a node is found dead whose kubelet is silent for so long; None where it is not."""
    renewed, looked, signs = -chance.uniform(0, RENEW_S), -chance.uniform(0, POLL_S), SignsOfLife()
    last_renewed = renewed
    end_s = silent_from_s + min(silent_for_s, 400) + 30
    while looked < end_s:
        looked += POLL_S + chance.uniform(0, 0.05)
        while renewed + RENEW_S <= looked:
            renewed += RENEW_S * chance.uniform(1, 1.04)
            if not silent_from_s <= renewed < silent_from_s + silent_for_s:
                last_renewed = renewed
        others = dict.fromkeys(OTHERS, f"{looked:.0f}")
        before, signs = signs, signs.after({"node": f"{last_renewed:.3f}", **others}, {}, looked)
        quiet = signs.silent.get("node")
        is_ready = not (is_ready_late and looked - last_renewed > MONITOR_S)
        if judged(Evidence(True, False, is_ready, quiet, link)).state is NodeState.DEAD:
            return looked - silent_from_s
        assert all(name == "node" for name in signs.news_since(before))
    return None


def test_of_a_thousand_blips_none_is_a_death() -> None:
    for seed in range(1000):
        chance = seeded(seed)
        assert first_dead(chance, chance.uniform(20, 60), chance.uniform(5, 240), GangLink.WHOLE) is None


def test_without_word_of_the_ranks_no_blip_shorter_than_the_lease_is_one() -> None:
    for seed in range(200):
        chance = seeded(seed)
        assert first_dead(chance, chance.uniform(20, 60), chance.uniform(5, 30), GangLink.UNKNOWN) is None


def test_deaths_are_known_in_time() -> None:
    took = [first_dead(seeded(seed), 30 + seed % 10, 1e9, GangLink.BROKEN) for seed in range(300)]
    assert None not in took
    known = sorted(each for each in took if each is not None)
    assert known[int(0.95 * len(known))] < 26
    alone = [first_dead(seeded(seed), 30 + seed % 10, 1e9, GangLink.UNKNOWN) for seed in range(50)]
    assert all(each is not None and 40 < each < 60 for each in alone)


def listed(signs: SignsOfLife, at_s: float, renewed: Mapping[str, str], **beats: str) -> SignsOfLife:
    return signs.after(renewed, beats, at_s)


def test_a_word_of_the_agent_is_a_sign_of_life() -> None:
    signs = SignsOfLife()
    for look in range(12):
        signs = listed(signs, look * POLL_S, {"a": "same", "b": str(look)}, a=str(look // 3))
    assert signs.silent == {}


def test_what_was_not_heard_while_nobody_answered_is_no_silence() -> None:
    signs = listed(SignsOfLife(), 0, {"a": "1", "b": "1"})
    signs = listed(signs, 300, {"a": "1", "b": "2"})
    assert signs.silent == {}
    for look in range(1, 8):
        signs = listed(signs, 300 + look * POLL_S, {"a": "1", "b": f"{look}-"})
    assert signs.silent == {"a": Quiet.SILENT}


@pytest.mark.parametrize(
    ("silent", "nodes", "is_told"),
    [
        (2, 2, False),
        (1, 2, True),
        (2, 3, True),
        (56, 100, False),
        (55, 100, True),
        pytest.param(8, 11, False, id="all workers, and no node of the control plane"),
    ],
)
def test_where_nearly_all_are_silent_it_is_not_the_nodes(silent: int, nodes: int, is_told: bool) -> None:
    signs = SignsOfLife()
    for look in range(8):
        renewed = {str(node): "same" if node < silent else str(look) for node in range(nodes)}
        signs = listed(signs, look * POLL_S, renewed)
    assert bool(signs.silent) is is_told


@pytest.mark.parametrize("nodes", [2, 8, 200])
def test_while_the_control_plane_hears_the_nodes_again_none_is_silent(nodes: int) -> None:
    """They are heard one after the other, within the 10 s of a renewal."""
    signs = listed(SignsOfLife(), 0, {f"node-{each}": "a" for each in range(nodes)})
    for at_s in range(4, 76, 4):
        heard = [each / nodes * 10 + 62 <= at_s for each in range(nodes)]
        signs = listed(signs, at_s, {f"node-{each}": "b" if heard[each] else "a" for each in range(nodes)})
        if at_s >= 60:
            assert not signs.silent, f"at {at_s} s, when {sum(heard)} of {nodes} are heard"


def test_a_node_that_stays_away_is_silent_soon_after_the_others_are_heard() -> None:
    signs = listed(SignsOfLife(), 0, {f"node-{each}": "a" for each in range(8)})
    for at_s in range(4, 92, 4):
        renewed = "a" if at_s < 64 else str(at_s // 10)
        signs = listed(signs, at_s, {"node-0": "a", **{f"node-{each}": renewed for each in range(1, 8)}})
    assert signs.silent == {"node-0": Quiet.SILENT}


def test_only_steps_of_silence_are_news() -> None:
    signs, told = SignsOfLife(), list[tuple[str, Silence | None]]()
    for look in range(14):
        before, signs = signs, listed(signs, look * POLL_S, {"a": "same" if look < 13 else "new", "b": str(look)})
        told += signs.news_since(before).items()
    assert told == [("a", Silence("a", quiet)) for quiet in Quiet] + [("a", None)]


@pytest.mark.parametrize("document", [b"{}", b"[]", b'{"metadata":{"name":3}}', b"\xff", b'{"metadata":{"name":"a"}}'])
def test_a_lease_that_cannot_be_read_says_nothing(document: bytes) -> None:
    assert renewal(document) is None


def test_a_lease_is_read() -> None:
    document = b'{"metadata":{"name":"a","labels":{}},"spec":{"renewTime":"2026-11-25T10:00:00.000000Z"}}'
    assert renewal(document) == ("a", "2026-11-25T10:00:00.000000Z")


def test_a_silent_node_that_is_not_ready_ends_its_gang_long_before_an_eviction() -> None:
    story = Story(*(each for n in "123" for each in plugin_node(f"gpu-{n}")), training_job(spec={"gpus": 16}))
    story.settle()
    story.run_all()
    story.settle()
    for quiet in Quiet:
        story.silence("gpu-2", quiet)
        story.settle()
        assert story.status().attempt == 1
    story.lose_node("gpu-2")
    story.settle()
    (ended,) = story.status().attempts
    assert (ended.reason, ended.charged) == ("NodeLost", False)
    assert (ended.message or "").startswith("node gpu-2 is silent: for 40 s its kubelet has not renewed its Lease")
    assert [each.name for each in (story.status().placement or pytest.fail("not placed")).nodes] == ["gpu-1", "gpu-3"]


def test_no_new_gang_goes_to_a_silent_node() -> None:
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"))
    story.silence("gpu-1", Quiet.SILENT)
    story.add(training_job(spec={"gpus": 8}))
    story.settle()
    assert [each.name for each in (story.status().placement or pytest.fail("not placed")).nodes] == ["gpu-2"]


def test_while_another_node_is_overdue_nothing_takes_the_place_of_the_dead_one() -> None:
    story = Story(*(each for n in "12345" for each in plugin_node(f"gpu-{n}")), training_job(spec={"gpus": 24}))
    story.settle()
    story.run_all()
    story.settle()
    story.silence("gpu-3", Quiet.OVERDUE)
    story.silence("gpu-2", Quiet.LONG)
    story.lose_node("gpu-2")
    story.settle()
    assert (story.status().placement or pytest.fail("not placed")).lost == "1"
    story.silence("gpu-3", Quiet.SILENT)
    story.settle()
    assert [each.name for each in (story.status().placement or pytest.fail("not placed")).nodes] == [
        "gpu-1", "gpu-4", "gpu-5",
    ]  # fmt: skip
    assert len(story.status().attempts) == 1


def test_a_node_out_of_service_is_dead_at_once() -> None:
    story = Story(*(each for n in "123" for each in plugin_node(f"gpu-{n}")), training_job(spec={"gpus": 16}))
    story.settle()
    story.run_all()
    story.settle()
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    story.objects["Node", "", "gpu-1"]["spec"]["taints"] = [taint]
    story.settle()
    assert [each.reason for each in story.status().attempts] == ["NodeLost"]
    assert [each.name for each in (story.status().placement or pytest.fail("not placed")).nodes] == ["gpu-3", "gpu-2"]
