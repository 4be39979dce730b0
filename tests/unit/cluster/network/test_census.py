"""The levels that counts give, event by event, against the levels read from all nodes at once."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.cluster.immutable.heartbeats import Heartbeats
from closeknit.cluster.network.census import Census, LabelledLevels
from closeknit.cluster.network.levels import SCHEMES, Levels, Place, Scheme, nvlink_domain

KEYS = (
    "net.example/block",
    "net.example/rack",
    "fabric.topograph.run/tier-1",
    "fabric.topograph.run/tier-0",
    "accelerator.topograph.run/domain",
    "accelerator.topograph.run/sub-domain",
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/ultraserver-id",
    "cloud.google.com/gce-topology-block",
    "nvidia.com/gpu.clique",
)
GIVEN: tuple[LabelledLevels, ...] = (
    (),
    (("block", "net.example/block"), ("rack", "net.example/rack")),
    (("rack", "net.example/rack"),),
    (("outer", "net.example/rack"), ("inner", "net.example/rack")),
)
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["", "a", "b", "c"]), max_size=5)
places = st.none() | st.builds(Place, labels, st.sampled_from([None, None, "f.1", "f.2"]))
moves = st.dictionaries(st.sampled_from("stuvwxyz"), places, max_size=4)
steps = st.lists(moves | st.sampled_from(GIVEN), max_size=12)


def from_scratch(given: LabelledLevels, everywhere: Iterable[Place]) -> Levels:
    """The rule itself, with all nodes looked at: it is what a Census must come to."""
    nodes = tuple(everywhere)

    def is_borne(scheme: Scheme) -> bool:
        return any(place.labels.get(key) for place in nodes for key in scheme.keys)

    labelled: LabelledLevels = given
    labels: tuple[str, ...] = ()
    if not given:
        scheme = next((scheme for scheme in SCHEMES if is_borne(scheme)), Scheme(()))
        labelled = tuple((level, key) for level, key in scheme.levels if any(place.labels.get(key) for place in nodes))
        labels = scheme.nvlink
    has_domains = any(nvlink_domain(place, labels) for place in nodes)
    return Levels(labelled, has_nvlink_domain=has_domains, nvlink_labels=labels)


@settings(max_examples=500, deadline=None)
@given(steps)
def test_counting_event_by_event_comes_to_what_a_look_at_all_nodes_says(
    sequence: list[Mapping[str, Place | None] | LabelledLevels],
) -> None:
    census, given_levels = Census(), GIVEN[0]
    nodes: dict[str, Place] = {}
    for step in sequence:
        pairs: list[tuple[Place | None, Place | None]] = []
        if isinstance(step, tuple):
            given_levels = step
        else:
            pairs = [(nodes.get(name), place) for name, place in step.items()]
            nodes = {name: place for name, place in {**nodes, **step}.items() if place is not None}
        census = census.after(given_levels, pairs, nodes.values)
        assert census.levels == from_scratch(given_levels, nodes.values())
    every_node = [(None, place) for place in nodes.values()]
    assert census == Census().after(given_levels, every_node, nodes.values)


def test_all_nodes_are_looked_at_only_when_the_scheme_itself_changes() -> None:
    def never() -> Iterable[Place]:
        raise AssertionError("all nodes are read again")

    racks = [Place({"net.example/rack": rack, "nvidia.com/gpu.clique": "c.1"}, None) for rack in ("r1", "r2", "r1")]
    one, other, again = racks
    census = Census().after(GIVEN[2], [(None, one), (None, again)], lambda: [one, again])
    assert census.levels.names == ("rack", "nvlink-domain", "host")
    moved = census.after(GIVEN[2], [(again, other)], never)
    assert moved == census
    assert moved.after(GIVEN[2], [(one, None), (other, None)], never).levels.names == ("rack", "host")


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
moments = st.none() | st.integers(-400, 400).map(lambda seconds: NOON + timedelta(seconds=seconds))
beats = st.lists(st.tuples(st.sampled_from("abcd"), moments), max_size=20)


@settings(deadline=None)
@given(beats, moments, st.integers(0, 400))
def test_agents_are_found_by_the_moment_of_their_heartbeat(
    sequence: list[tuple[str, datetime | None]], first: datetime | None, seconds: int
) -> None:
    filed, last_beats = Heartbeats(), dict[str, datetime | None]()
    for node, beat in sequence:
        filed = filed.after([(node, last_beats.get(node), beat)])
        last_beats[node] = beat
    known = {node: beat for node, beat in last_beats.items() if beat is not None}
    last = (first or NOON) + timedelta(seconds=seconds)
    due = {node for node, beat in known.items() if (first is None or first <= beat) and beat <= last}
    assert due <= set(filed.between(first, last)) <= known.keys()
    near = {node for node, beat in known.items() if (first is None or first - beat < MINUTE) and beat - last < MINUTE}
    assert set(filed.between(first, last)) <= near
    assert filed.newest(last) == max((beat for beat in known.values() if beat <= last), default=None)
