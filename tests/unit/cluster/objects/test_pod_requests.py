"""What a Pod takes of its node: Kubernetes' own cases, those of component-helpers/resource among them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeknit.cluster.objects import pod_requests
from closeknit.cluster.objects.pod_requests import amounts, needs
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.store.watched_kinds import from_document
from scenarios.manifests import Manifest, pod

GI = 1 << 30


def container(requests: Manifest | None = None, limits: Manifest | None = None, **more: Any) -> Manifest:
    return {"name": "main", "resources": {"requests": requests, "limits": limits}, **more}


def asking(*containers: Manifest, init: tuple[Manifest, ...] = (), **spec: Any) -> Manifest:
    return {"containers": list(containers), "initContainers": list(init), **spec}


def init(requests: Manifest) -> Manifest:
    return container(requests, name="init")


def sidecar(requests: Manifest) -> Manifest:
    return container(requests, name="sidecar", restartPolicy="Always")


def taken(spec: Manifest, **status: Any) -> dict[str, int]:
    """What a running Pod of this spec takes, GPUs included; one GPU more keeps it from being a Lodger."""
    gpu = container({"nvidia.com/gpu": "1"}, name="gpu")
    running = {**pod(), "spec": {**spec, "containers": [*spec["containers"], gpu], "nodeName": "gpu-1"}}
    found = from_document({**running, "status": {"phase": "Running", **status}})
    assert isinstance(found, Pod)
    return {name: amount for name, amount in found.requests.items() if name != "nvidia.com/gpu"}


SPECS: dict[str, tuple[Manifest, dict[str, int]]] = {
    "nothing": (asking(container()), {}),
    "containers add up": (
        asking(container({"cpu": "1", "memory": "1Gi"}), container({"cpu": "500m"})),
        {"cpu": 1500, "memory": GI},
    ),
    "limits alone are requests, too": (
        asking(container({"cpu": "1"}, {"cpu": "2", "memory": "2Gi", "example.com/fpga": "3"})),
        {"cpu": 1000, "memory": 2 * GI, "example.com/fpga": 3},
    ),
    "the greediest init container, where it asks for more": (
        asking(container({"cpu": "2", "memory": "1Gi"}), init=(init({"cpu": "1"}), init({"cpu": "3"}))),
        {"cpu": 3000, "memory": GI},
    ),
    "a sidecar runs beside all others": (
        asking(container({"cpu": "2"}), init=(sidecar({"cpu": "1"}), init({"cpu": "1500m"}))),
        {"cpu": 3000},
    ),
    "an init container runs beside the sidecars before it": (
        asking(container({"cpu": "1"}), init=(sidecar({"cpu": "1"}), init({"cpu": "3"}), sidecar({"cpu": "1"}))),
        {"cpu": 4000},
    ),
    "and not beside those after it": (
        asking(container({"cpu": "1"}), init=(init({"cpu": "3"}), sidecar({"cpu": "1"}))),
        {"cpu": 3000},
    ),
    "resources of different moments": (
        asking(container({"cpu": "1", "memory": "4Gi"}), init=(init({"cpu": "2", "memory": "1Gi"}),)),
        {"cpu": 2000, "memory": 4 * GI},
    ),
    "overhead comes on top": (
        asking(container({"cpu": "1"}), init=(init({"cpu": "2"}),), overhead={"cpu": "250m", "memory": "120Mi"}),
        {"cpu": 2250, "memory": 120 << 20},
    ),
    "the Pod's own word on CPU, memory and huge pages": (
        asking(
            container({"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}),
            resources={"requests": {"cpu": "4", "memory": "512Mi", "hugepages-2Mi": "4Mi", "ephemeral-storage": "9Gi"}},
            overhead={"cpu": "1"},
        ),
        {"cpu": 5000, "memory": 512 << 20, "hugepages-2Mi": 4 << 20, "ephemeral-storage": GI},
    ),
    "the Pod's limit, where no container asks": (
        asking(container({"cpu": "1"}), resources={"limits": {"cpu": "4", "memory": "8Gi"}}),
        {"cpu": 1000, "memory": 8 * GI},
    ),
    "a limit of the Pod's keeps what containers ask of CPU, and takes the place of their huge pages": (
        asking(
            container({"cpu": "1"}, {"hugepages-2Mi": "8Mi", "hugepages-1Gi": "1Gi"}),
            resources={"limits": {"cpu": "4", "hugepages-2Mi": "16Mi"}},
        ),
        {"cpu": 1000, "hugepages-2Mi": 16 << 20, "hugepages-1Gi": GI},
    ),
    "huge pages and any extended resource": (
        asking(container(limits={"hugepages-1Gi": "2Gi", "example.com/nic": "2", "smarter-devices/fuse": "1"})),
        {"hugepages-1Gi": 2 * GI, "example.com/nic": 2, "smarter-devices/fuse": 1},
    ),
    "what the scheduler does not count": (
        asking(container({"pods": "3", "storage": "1Gi", "disk": "1", "requests.example.com/x": "1"})),
        {},
    ),
    "fractions are rounded when all is added": (
        asking(container({"memory": "500m", "cpu": "0.0005"}), container({"memory": "500m", "cpu": "100u"})),
        {"memory": 1, "cpu": 2},
    ),
    "zero is nothing": (asking(container({"cpu": "0", "memory": "0Gi", "example.com/x": "0"})), {}),
}


@pytest.mark.parametrize(("spec", "expected"), SPECS.values(), ids=SPECS.keys())
def test_what_a_pod_takes(spec: Manifest, expected: dict[str, int]) -> None:
    assert taken(spec) == expected
    assert needs(spec) == tuple(sorted({**expected, "pods": 1}.items()))


INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
DEFERRED = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]


def given_to(name: str, requests: Manifest | None, allocated: Manifest | None) -> Manifest:
    resources = None if requests is None else {"requests": requests}
    return {"name": name, "resources": resources, "allocatedResources": allocated, "state": {"running": {}}}


RESIZED: dict[str, tuple[Manifest, dict[str, Any], dict[str, int]]] = {
    "one that becomes smaller has not given back yet": (
        asking(container({"cpu": "1"})),
        {"containerStatuses": [given_to("main", {"cpu": "3"}, {"cpu": "1"})]},
        {"cpu": 3000},
    ),
    "one that becomes larger holds its place already": (
        asking(container({"cpu": "4"})),
        {"containerStatuses": [given_to("main", {"cpu": "3"}, {"cpu": "3"})], "conditions": DEFERRED},
        {"cpu": 4000},
    ),
    "one that can never become so large keeps what it has": (
        asking(container({"cpu": "400"})),
        {"containerStatuses": [given_to("main", {"cpu": "2"}, {"cpu": "3"})], "conditions": INFEASIBLE},
        {"cpu": 3000},
    ),
    "devices are never resized, whatever is told of them": (
        asking(container({"cpu": "400"}, limits={"example.com/nic": "2"})),
        {"containerStatuses": [given_to("main", {"cpu": "2"}, {"cpu": "3"})], "conditions": INFEASIBLE},
        {"cpu": 3000, "example.com/nic": 2},
    ),
    "a status without resources says nothing": (
        asking(container({"cpu": "1"})),
        {"containerStatuses": [given_to("main", None, {"cpu": "3"})]},
        {"cpu": 1000},
    ),
    "a sidecar is resized as well": (
        asking(container({"cpu": "1"}), init=(sidecar({"cpu": "1"}),)),
        {"initContainerStatuses": [given_to("sidecar", {"cpu": "2"}, {"cpu": "2"})]},
        {"cpu": 3000},
    ),
    "an init container is not": (
        asking(container({"cpu": "1"}), init=(init({"cpu": "1"}),)),
        {"initContainerStatuses": [given_to("init", {"cpu": "5"}, {"cpu": "5"})]},
        {"cpu": 1000},
    ),
    "the Pod as a whole": (
        asking(container({"cpu": "1"}), resources={"requests": {"cpu": "2", "memory": "1Gi"}}),
        {"resources": {"requests": {"cpu": "5"}}, "allocatedResources": {"memory": "2Gi"}},
        {"cpu": 5000, "memory": 2 * GI},
    ),
    "the Pod as a whole that can never become so large": (
        asking(container({"cpu": "1"}), resources={"requests": {"cpu": "200"}}),
        {"resources": {"requests": {"cpu": "5"}}, "allocatedResources": {"cpu": "4"}, "conditions": INFEASIBLE},
        {"cpu": 5000},
    ),
}


@pytest.mark.parametrize(("spec", "status", "expected"), RESIZED.values(), ids=RESIZED.keys())
def test_while_a_pod_is_resized_the_larger_counts(
    spec: Manifest, status: dict[str, Any], expected: dict[str, int]
) -> None:
    assert taken(spec, **status) == expected


def test_a_template_needs_no_gpus_and_nothing_that_a_claim_will_be_made_of() -> None:
    wanted = {"nvidia.com/gpu": "8", "deviceclass.resource.kubernetes.io/nic": "1", "rdma/hca": "2"}
    assert needs(asking(container(wanted))) == (("pods", 1), ("rdma/hca", 2))


HOSTILE: dict[str, object] = {
    "no quantity": "abc",
    "below zero": "-5",
    "a number below zero": -5,
    "more than there is": "1e400",
    "a text of a megabyte": "9" * (1 << 20),
    "a number of a thousand digits": 10**1000,
    "a number too long to be text": 10**5000,
    "infinity": float("inf"),
    "no number": float("nan"),
    "nothing": None,
    "digits of another script": "٣",
}


@pytest.mark.parametrize("amount", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_quantity_counts_as_little_or_as_the_most_that_there_is(amount: object) -> None:
    found = dict(needs(asking(container({"memory": amount, "cpu": "1"}))))
    assert found.pop("memory", 0) in {0, (1 << 63) - 1}
    assert found == {"cpu": 1000, "pods": 1}
    assert dict(amounts({"memory": amount}))["memory"] in {0, (1 << 63) - 1}  # type: ignore[dict-item]


UNREADABLE: dict[str, object] = {
    "no object": "x",
    "requests that are a list": asking({"name": "main", "resources": {"requests": ["cpu"]}}),
    "an amount that is a truth": asking(container({"cpu": True})),
    "containers that are an object": {"containers": {}},
}


@pytest.mark.parametrize("template", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_template_that_cannot_be_read_is_left_to_the_api_server(template: object) -> None:
    assert needs(template) == (("pods", 1),)


def test_thousands_of_containers_are_added_up_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may make such a Pod; whoever added up all sidecars at each of them would stand still for seconds."""
    looked_at: list[int] = []
    real = pod_requests._raise

    def counted(most: dict[str, int], other: dict[str, int]) -> None:
        looked_at.append(len(other))
        real(most, other)

    monkeypatch.setattr(pod_requests, "_raise", counted)
    count = 1000
    each = [{f"example.com/{number}": "1"} for number in range(count)]
    found = dict(needs(asking(container(), init=(*map(sidecar, each), *map(init, each)))))
    assert set(found.values()) == {1, 2}
    assert len(found) == pod_requests.MOST_RESOURCES + 1, "and the Pod itself"
    assert sum(looked_at) <= 3 * count


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["containers", "initContainers", "overhead", "resources", "requests", "limits", "cpu", "rdma/x", "name"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_no_template_breaks_anything(template: object) -> None:
    assert all(amount > 0 for _, amount in needs(template))
