"""Which nodes a required node affinity selects, beside a model written from Kubernetes' documentation; and what a job
that selects or avoids nodes gets."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeknit.api.affinity import REQUIRED
from closeknit.api.names import JobKey
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.objects.taints_and_faults import Taint
from closeknit.placement.candidates.node_filter import admits
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.values.placement import NoFit, Placement
from closeknit.placement.values.request import Request, request
from scenarios.clusters import cluster_of, graph, held, node, wanted

H200 = graph("hgx-h200")
KEYS = ("pool", "zone", "size")
VALUES = ("", "a", "b", "1", "2", "010", "9223372036854775807", "9223372036854775808")
NAMES = ("gpu-1", "gpu-2", "gpu-3")


def asking(required: object, gpus: int = 8, **template: object) -> Request:
    """The request of a job whose template has this required node affinity."""
    affinity = {"nodeAffinity": {REQUIRED: required}}
    spec = {"containers": [{"name": "trainer"}], "affinity": affinity, **template}
    return request(JobKey("ml", "train"), TrainingJobSpec.parse({"gpus": gpus, "template": {"spec": spec}}))


def labelled(*requirements: tuple[str, str, list[str]]) -> dict[str, Any]:
    """One term."""
    entries = [{"key": key, "operator": operator, "values": values} for key, operator, values in requirements]
    return {"matchExpressions": entries}


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (("pool", "In", ["a", "b"]), True),
        (("pool", "In", ["b"]), False),
        (("zone", "In", [""]), False),
        (("pool", "NotIn", ["a"]), False),
        (("zone", "NotIn", ["a"]), True),
        (("pool", "Exists", []), True),
        (("zone", "Exists", []), False),
        (("pool", "DoesNotExist", []), False),
        (("zone", "DoesNotExist", []), True),
        (("size", "Gt", ["9"]), True),
        (("size", "Gt", ["10"]), False),
        (("size", "Gt", ["x"]), False),
        (("size", "Lt", ["11"]), True),
        (("size", "Lt", ["010"]), False),
        (("size", "Lt", ["9223372036854775808"]), False),
        (("pool", "Lt", ["9"]), False),
        (("zone", "Lt", ["9"]), False),
    ],
    ids=str,
)
def test_what_an_operator_means(requirement: tuple[str, str, list[str]], expected: bool) -> None:
    view = node("gpu-1", H200, labels={"pool": "a", "size": "10"})
    assert admits(view, asking({"nodeSelectorTerms": [labelled(requirement)]})) is expected


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param([{}], False, id="an empty term selects nothing"),
        pytest.param([{"matchExpressions": [], "matchFields": None}], False, id="nor does one of empty lists"),
        pytest.param([{}, labelled(("pool", "Exists", []))], True, id="terms are alternatives"),
        pytest.param([labelled(("pool", "Exists", []), ("pool", "In", ["b"]))], False, id="all of a term is needed"),
        pytest.param(
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}]}], True, id="a name"
        ),
        pytest.param(
            [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["gpu-1"]}]}],
            False,
            id="not a name",
        ),
    ],
)
def test_terms_are_alternatives_of_which_all_is_needed(terms: list[dict[str, Any]], expected: bool) -> None:
    view = node("gpu-1", H200, labels={"pool": "a"})
    assert admits(view, asking({"nodeSelectorTerms": terms})) is expected
    assert not admits(view, asking({"nodeSelectorTerms": terms}, nodeSelector={"pool": "b"}))


ARM = "kubernetes.io/arch"


@pytest.mark.parametrize(
    ("required", "selector", "taint", "expected"),
    [
        (None, {ARM: "arm64"}, Taint(ARM, "arm64", "NoSchedule"), True),
        ({"nodeSelectorTerms": [labelled((ARM, "In", ["arm64"]))]}, {}, Taint(ARM, "arm64", "NoSchedule"), True),
        (None, {ARM: "arm64"}, Taint(ARM, "arm64", "NoExecute"), False),
        (None, {ARM: "arm64"}, Taint("dedicated", "arm64", "NoSchedule"), False),
        (None, {}, Taint(ARM, "arm64", "NoSchedule"), False),
        ({"nodeSelectorTerms": [labelled((ARM, "Exists", []))]}, {}, Taint(ARM, "arm64", "NoSchedule"), False),
    ],
)
def test_who_requires_an_architecture_tolerates_its_taint(
    required: object, selector: dict[str, str], taint: Taint, *, expected: bool
) -> None:
    view = replace(node("gpu-1", H200, labels={ARM: "arm64"}), taints=(taint,))
    assert admits(view, asking(required, nodeSelector=selector)) is expected


def test_without_a_required_affinity_every_node_is_selected() -> None:
    view = node("gpu-1", H200)
    given: tuple[object, ...] = (None, "x", {})  # launch refuses what is malformed
    assert all(admits(view, asking(required)) for required in given)


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) < 2**63 else None


def expected_of(name: str, labels: Mapping[str, str], spec: Mapping[str, Any]) -> bool:
    """The model: what kube-scheduler would say, on the JSON itself."""
    if any(labels.get(key) != value for key, value in spec["nodeSelector"].items()):
        return False
    for term in spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]:
        entries = [(entry, labels) for entry in term["matchExpressions"]]
        entries += [(entry, {"metadata.name": name}) for entry in term["matchFields"]]
        verdicts = []
        for entry, facts in entries:
            there, value = entry["key"] in facts, facts.get(entry["key"], "")
            number = _number(value) if there else None
            bound = _number(entry["values"][0]) if len(entry["values"]) == 1 else None
            verdicts.append(
                {
                    "In": there and value in entry["values"],
                    "NotIn": not (there and value in entry["values"]),
                    "Exists": there,
                    "DoesNotExist": not there,
                    "Gt": number is not None and bound is not None and number > bound,
                    "Lt": number is not None and bound is not None and number < bound,
                }[entry["operator"]]
            )
        if verdicts and all(verdicts):
            return True
    return False


LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
AMOUNTS = {"In": (1, 4), "NotIn": (1, 4), "Exists": (0, 0), "DoesNotExist": (0, 0), "Gt": (1, 1), "Lt": (1, 1)}


@st.composite
def requirements(draw: st.DrawFn, keys: tuple[str, ...], values: tuple[str, ...], operators: list[str]) -> Any:
    operator = draw(st.sampled_from(operators))
    least, most = (1, 1) if keys == ("metadata.name",) else AMOUNTS[operator]
    amount = draw(st.lists(st.sampled_from(values), min_size=least, max_size=most))
    return {"key": draw(st.sampled_from(keys)), "operator": operator, "values": amount}


TERMS = st.fixed_dictionaries(
    {
        "matchExpressions": st.lists(requirements(KEYS, VALUES, list(AMOUNTS)), max_size=3),
        "matchFields": st.lists(requirements(("metadata.name",), NAMES, ["In", "NotIn"]), max_size=1),
    }
)


@given(
    name=st.sampled_from(NAMES),
    labels=LABELS,
    terms=st.lists(TERMS, min_size=1, max_size=3),
    selector=st.just({}) | LABELS,
)
def test_our_answer_is_that_of_the_model(
    name: str, labels: dict[str, str], terms: list[dict[str, Any]], selector: dict[str, str]
) -> None:
    required = {"nodeSelectorTerms": terms}
    asked = asking(required, nodeSelector=selector)
    spec = {"nodeSelector": selector, "affinity": {"nodeAffinity": {REQUIRED: required}}}
    assert admits(node(name, H200, labels=labels), asked) is expected_of(name, labels, spec)


def test_a_job_gets_nodes_of_its_affinity_alone_and_follows_their_labels() -> None:
    nodes = [node(name, H200, labels={"pool": pool}) for name, pool in zip(NAMES, "abb", strict=True)]
    cluster, tables = cluster_of(*nodes), Tables()
    asked = asking({"nodeSelectorTerms": [labelled(("pool", "NotIn", ["a"]))]})
    for _ in range(2):  # the second time from what is kept
        found = place(cluster, asked, tables)
        assert isinstance(found, Placement)
        assert [share.node for share in found.shares] == ["gpu-2"]
    moved = cluster_of(node("gpu-1", H200), *(replace(view, labels={"pool": "a"}) for view in nodes[1:]))
    found = place(moved, asked, tables)
    assert isinstance(found, Placement)
    assert [share.node for share in found.shares] == ["gpu-1"]


def test_an_avoided_node_is_left_alone_and_is_no_worse_for_others() -> None:
    cluster, tables = cluster_of(*(node(name, H200) for name in NAMES)), Tables()
    avoiding = replace(wanted(gpus=8), avoided=frozenset({"gpu-1", "gone"}))
    for asked, expected in ((avoiding, "gpu-2"), (wanted(gpus=8), "gpu-1"), (avoiding, "gpu-2")):
        found = place(cluster, asked, tables)
        assert isinstance(found, Placement)
        assert [share.node for share in found.shares] == [expected]
    assert not admits(cluster.nodes["gpu-1"], avoiding)
    assert admits(cluster.nodes["gpu-2"], avoiding)
    both = replace(asking({"nodeSelectorTerms": [labelled(("pool", "DoesNotExist", []))]}), avoided=avoiding.avoided)
    found = place(cluster, both, tables)
    assert isinstance(found, Placement)
    assert [share.node for share in found.shares] == ["gpu-2"]
    assert not can_place(cluster, replace(avoiding, avoided=frozenset(NAMES)), tables)


def test_avoided_nodes_do_not_make_the_ideal_worse() -> None:
    """What the cluster could give is a fact of the cluster, and not of what a job has met there."""
    cluster = cluster_of(node("gpu-1", H200), node("gpu-2", graph("dgx-1v")))
    found = place(cluster, replace(wanted(gpus=4), avoided=frozenset({"gpu-1"})), Tables())
    assert isinstance(found, Placement)
    assert (found.predicted_bus_bandwidth_gb_s, found.ideal_bus_bandwidth_gb_s) == (80.0, 353.9)


@pytest.mark.parametrize(
    ("template", "avoided", "words"),
    [
        (
            {"nodeSelector": {"pool": "a"}},
            (),
            "gpu-2 (not selected by nodeSelector), gpu-3 (not selected by nodeSelector)",
        ),
        ({}, ("gpu-3", "gpu-4"), "gpu-3 (avoided after it refused a Pod of this job)"),
    ],
)
def test_who_is_left_out_is_named(template: dict[str, Any], avoided: tuple[str, ...], words: str) -> None:
    nodes = [node(name, H200, labels={"pool": pool}) for name, pool in zip(NAMES, "abb", strict=True)]
    asked = replace(asking(None, gpus=32, **template), avoided=frozenset(avoided))
    found = place(cluster_of(*nodes, held(node("gpu-0", H200, labels={"pool": "a"}), 0)), asked, Tables())
    assert isinstance(found, NoFit)
    assert found.message.endswith(f"excluded: {words}"), found.message


@pytest.mark.parametrize(
    ("selector", "words"),
    [({}, "not selected by node affinity"), ({"pool": "b"}, "not selected by nodeSelector or node affinity")],
)
def test_many_that_are_left_out_are_counted(selector: dict[str, str], words: str) -> None:
    nodes = [node(f"gpu-{number}", H200, labels={"pool": "b"}) for number in range(6)]
    required = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
                                      for name in ("gpu-0", "gpu-1", "gpu-2")]}  # fmt: skip
    asked = asking(required, gpus=32, nodeSelector=selector)
    tainted = replace(nodes[1], taints=node("x", H200, taint="maintenance").taints)
    cluster = cluster_of(nodes[0], tainted, *nodes[2:])
    found = place(cluster, replace(asked, avoided=frozenset({"gpu-2", "gpu-5"})), Tables())
    assert isinstance(found, NoFit)
    assert found.message == (
        f"needs 32 GPUs; 8 are free on 1 node; 5 nodes excluded: 3 {words}, 1 Tainted, "
        "1 avoided after it refused a Pod of this job"
    )
