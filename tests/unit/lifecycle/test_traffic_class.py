"""A traffic class that a job names: how its packets are marked, and what it is told where they are not."""

from typing import Any

import pytest

from scenarios.networks import degraded, environment, job, nics, two
from scenarios.story import Story


def with_class(ports: str, *, declared: dict[str, Any] | None, **spec: Any) -> Story:
    asked = job()
    asked["spec"]["network"] = {"trafficClass": "training", **spec}
    fabric = {"trafficClasses": declared} if declared is not None else {}
    topology = {
        "apiVersion": "closeknit.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "default"},
        "spec": {"fabric": fabric},
    }  # fmt: skip
    story = Story(*two(nics(ports), hca="8"), topology, asked)
    story.settle()
    return story


QOS = {"training": {"dscp": 26, "serviceLevel": 3}}


@pytest.mark.parametrize(("ports", "name", "value"), [("RoCE", "NCCL_IB_TC", "104"), ("InfiniBand", "NCCL_IB_SL", "3")])
def test_a_traffic_class_marks_as_the_site_declares(ports: str, name: str, value: str) -> None:
    assert environment(with_class(ports, declared=QOS))[name] == value


@pytest.mark.parametrize(("declared", "has"), [(None, "none"), ({"bulk": {"dscp": 8}}, "bulk")])
def test_a_traffic_class_that_nobody_declares_is_refused(declared: dict[str, Any] | None, has: str) -> None:
    pending = with_class("RoCE", declared=declared).status().pending
    assert pending is not None
    assert (pending.reason, pending.message) == (
        "UnknownTrafficClass",
        f"needs traffic class training; this cluster has {has}; name one that it has, or declare it in ClusterTopology "
        "default, spec.fabric.trafficClasses",
    )


def test_a_traffic_class_without_a_value_for_the_fabric_is_told() -> None:
    found = degraded(with_class("InfiniBand", declared={"training": {"dscp": 26}}))
    assert found is not None
    assert (found.reason, found.message) == (
        "TrafficClassNotMarked",
        "traffic class training marks nothing, because it is declared without a value for InfiniBand",
    )
