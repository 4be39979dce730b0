"""What somebody's Pod takes in the operator's memory, whatever of it is large: anybody may make Pods by the hundred."""

import gc
import json
import tracemalloc
from collections.abc import Callable

import pytest

from closeknit.cluster.store.watched_kinds import BY_STREAM, Stream
from scenarios.manifests import Manifest, pod, worker

PODS = 10
MOST_BYTES = 50_000
MANY = 5000


def container(made: Manifest) -> Manifest:
    found: Manifest = made["spec"]["containers"][0]
    return found


def labels_of_ours(made: Manifest, number: int) -> None:
    made["metadata"]["labels"] = {f"closeknit.dev/x{number}-{each}": "v" * 60 for each in range(MANY)}


def labels(made: Manifest, number: int) -> None:
    made["metadata"]["labels"] = {f"example.com/x{number}-{each}": "v" * 60 for each in range(MANY)}


def annotations(made: Manifest, number: int) -> None:
    made["metadata"]["annotations"] = {"example.com/x": f"{number}" * 200_000}


def owners(made: Manifest, number: int) -> None:
    owner = {"apiVersion": "v1", "kind": "X"}
    made["metadata"]["ownerReferences"] = [
        {**owner, "name": f"n{number}-{each}", "uid": f"u{number}-{each}"} for each in range(MANY)
    ]


def variables(made: Manifest, number: int) -> None:
    container(made)["env"] = [{"name": f"A{each}", "value": f"x{number}"} for each in range(MANY)]


def resources(made: Manifest, number: int) -> None:
    wanted = container(made)["resources"]["requests"]
    more = {f"example.com/r{number}-{each}": "1" for each in range(MANY)}
    container(made)["resources"] = {"requests": {**more, **wanted}, "limits": {**more, **wanted}}


def claims(made: Manifest, number: int) -> None:
    names = (f"c{number}-{each}" for each in range(MANY))
    made["spec"]["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in names]


@pytest.mark.parametrize("gpus", [0, 1], ids=["a lodger", "with a GPU"])
@pytest.mark.parametrize(
    "large",
    [labels_of_ours, labels, annotations, owners, variables, resources, claims],
    ids=lambda each: str(each.__name__),
)
def test_a_large_pod_of_somebody_takes_little(large: Callable[[Manifest, int], None], gpus: int) -> None:
    # As in test_cost_of_waiting: the process's table of interned texts grows in whatever test it comes to that.
    taken = [cost(large, gpus, 0)]
    if taken[0] > MOST_BYTES:
        taken.append(cost(large, gpus, PODS + 1))
    assert min(taken) <= MOST_BYTES


def cost(large: Callable[[Manifest, int], None], gpus: int, first: int) -> float:
    """Bytes that each of PODS takes, numbered from there."""
    documents = []
    for number in range(first, first + PODS + 1):
        made = pod(f"p{number}", requests={"cpu": "4", **({"nvidia.com/gpu": "1"} if gpus else {})}, uid=f"u{number}")
        large(made, number)
        documents.append(json.dumps(made).encode())
    decode = BY_STREAM[Stream.OTHER_PODS].decode
    decode(documents.pop())
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [decode(each) for each in documents]
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert all(kept)
    return taken / PODS


def test_of_a_pod_that_asks_for_thousands_of_things_what_decides_is_kept() -> None:
    made = pod("p", requests={"cpu": "4", "memory": "1Gi", "nvidia.com/gpu": "2", "zzz.com/x": "1"})
    resources(made, 0)
    found = BY_STREAM[Stream.OTHER_PODS].convert(made)
    assert (found.requests["cpu"], found.requests["nvidia.com/gpu"]) == (4000, 2)  # type: ignore[union-attr]
    assert len(found.requests) == 256  # type: ignore[union-attr]


def test_a_child_is_known_by_four_labels() -> None:
    made = worker(gpus=["GPU-1"])
    made["metadata"]["labels"] |= {"closeknit.dev/other": "x", "app": "y"}
    found = BY_STREAM[Stream.CHILD_PODS].convert(made)
    names = {f"closeknit.dev/{name}" for name in ("job", "attempt", "role", "index")}
    assert set(found.labels) == names  # type: ignore[union-attr]
