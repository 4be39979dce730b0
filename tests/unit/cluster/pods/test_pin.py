"""Which node a Pod is made for, read back from its affinity."""

from typing import Any

import msgspec
import pytest

from closeknit.cluster.pods.pin import WireAffinity, pin

HERE = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}


def affinity(*terms: dict[str, Any]) -> WireAffinity:
    required = {"nodeSelectorTerms": list(terms)}
    return msgspec.convert({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}, WireAffinity)


@pytest.mark.parametrize(
    ("terms", "node"),
    [
        ([{"matchFields": [HERE]}], "node-1"),
        # What the user's own template excludes comes before the pin.
        ([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-9"]}, HERE]}], "node-1"),
        ([{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}], "matchFields": [HERE]}], "node-1"),
        ([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-9"]}]}], ""),
        ([{"matchFields": [{**HERE, "values": ["node-1", "node-2"]}]}], ""),
        ([{"matchExpressions": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}], ""),
        ([], ""),
    ],
)
def test_only_one_name_that_is_demanded_is_a_pin(terms: list[dict[str, Any]], node: str) -> None:
    assert pin(affinity(*terms)) == node


def test_a_pod_without_affinity_is_pinned_nowhere() -> None:
    assert pin(None) == ""
