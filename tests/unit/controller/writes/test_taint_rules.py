"""DeviceTaintRules are made and taken back in whichever version a cluster serves: `v1` alone in Kubernetes 1.37,
`v1beta2` in 1.36 where an admin has turned it on. In memory."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from closeknit.controller.metrics import Metrics
from closeknit.controller.writes.resources import DEVICE_TAINT_RULES
from closeknit.controller.writes.writes import Writes
from closeknit.kube.api import Resource
from closeknit.lifecycle.device_taints import DeviceTaints, TaintNews, taint_news
from faults import virtual_time
from faults.kinds import Kind
from faults.memory_api import MemoryApi
from faults.store import Store
from scenarios.story import Story, dra_node

NEW, OLD = DEVICE_TAINT_RULES


def news(*gpus: int, rules: Sequence[dict[str, object]] = ()) -> TaintNews:
    """What is to be written where these GPUs are ill, and these rules are there."""
    story = Story(*dra_node("gpu-1"))
    told = [{"index": gpu, "state": "Unhealthy", "reasons": ["XID79"]} for gpu in gpus]
    story.objects[("NodeTopology", "", "gpu-1")]["status"]["gpus"] = told
    for rule in rules:
        story.add(rule)
    return taint_news(story.cluster, DeviceTaints.NO_SCHEDULE)


@pytest.mark.parametrize(
    ("served", "written"),
    [([NEW, OLD], [NEW]), ([NEW], [NEW]), ([OLD], [OLD]), ([], [])],
    ids=["both", "v1 alone", "v1beta2 alone", "none"],
)
def test_rules_are_made_and_taken_back_in_a_version_that_is_served(
    served: Sequence[Resource], written: Sequence[Resource]
) -> None:
    store = Store([Kind(resource, "DeviceTaintRule") for resource in served])
    writes = Writes(MemoryApi(store), Metrics().count_write, lambda: datetime(2026, 11, 26, tzinfo=UTC), "test")
    virtual_time.run(writes.taint(news(2, 3), most=10))
    made = {resource: store.objects(resource) for resource in served}
    assert {resource: len(found) for resource, found in made.items() if found} == dict.fromkeys(written, 2)
    found = [each for resource in written for each in made[resource]]
    assert {each["apiVersion"] for each in found} == {resource.api_version for resource in written}
    virtual_time.run(writes.taint(news(rules=found), most=10))
    assert [store.objects(resource) for resource in served] == [[] for _ in served]
