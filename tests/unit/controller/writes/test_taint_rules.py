"""DeviceTaintRules are made and taken back in whichever version a cluster serves: `v1` alone in Kubernetes 1.37,
`v1beta2` in 1.36 where an admin has turned it on. In memory."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from closeknit.controller.metrics import Metrics
from closeknit.controller.writes.cluster_writes import ClusterWrites
from closeknit.controller.writes.resources import DEVICE_TAINT_RULES
from closeknit.controller.writes.write_slots import WriteSlots
from closeknit.kube.api import Resource
from closeknit.kube.errors import ApiError, Forbidden, Invalid, Unavailable
from closeknit.kube.object_identity import Head
from closeknit.lifecycle.device_taints import DeviceTaints, TaintNews, taint_news
from faults import virtual_time
from faults.kinds import Kind
from faults.memory_api import MemoryApi
from faults.store import Store
from scenarios.story import Story, dra_node

NEW, OLD = DEVICE_TAINT_RULES


def writes_over(api: MemoryApi) -> ClusterWrites:
    return ClusterWrites(WriteSlots(api, Metrics().count_write), lambda: datetime(2026, 11, 26, tzinfo=UTC), "test")


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
    writes = writes_over(MemoryApi(store))
    virtual_time.run(writes.taint(news(2, 3), most=10))
    made = {resource: store.objects(resource) for resource in served}
    assert {resource: len(found) for resource, found in made.items() if found} == dict.fromkeys(written, 2)
    found = [each for resource in written for each in made[resource]]
    assert {each["apiVersion"] for each in found} == {resource.api_version for resource in written}
    virtual_time.run(writes.taint(news(rules=found), most=10))
    assert [store.objects(resource) for resource in served] == [[] for _ in served]


class Choosy(MemoryApi):
    """One that refuses the first rule and the first deletion, as an admission policy may, and counts what is asked."""

    def __init__(self, store: Store, error: type[ApiError]) -> None:
        super().__init__(store)
        self._error = error
        self.asked = 0

    async def make(self, *args: Any, **kwargs: Any) -> Head:
        self._refuse_the_first()
        return await super().make(*args, **kwargs)

    async def delete(self, *args: Any, **kwargs: Any) -> None:
        self._refuse_the_first()
        await super().delete(*args, **kwargs)

    def _refuse_the_first(self) -> None:
        self.asked += 1
        if self.asked == 1:
            raise self._error("no")


def test_rules_that_are_always_refused_keep_none_behind_them_back() -> None:
    """As many as are written at one look."""
    store = Store([Kind(NEW, "DeviceTaintRule")])
    rules = news(1, 2, 3, 4, 5).missing

    class Picky(MemoryApi):
        async def make(self, resource: Resource, body: dict[str, Any], **kwargs: Any) -> Head:
            if body["metadata"]["name"] in {each["metadata"]["name"] for each in rules[:2]}:
                raise Forbidden("no")
            return await super().make(resource, body, **kwargs)

    for look in range(4):
        there = {each["metadata"]["name"] for each in store.objects(NEW)}
        missing = tuple(each for each in rules if each["metadata"]["name"] not in there)
        virtual_time.run(writes_over(Picky(store)).taint(TaintNews(missing, ()), 2, look))
    assert len(store.objects(NEW)) == 3


@pytest.mark.parametrize(("error", "left"), [(Invalid, 1), (Forbidden, 1), (Unavailable, 2)])
def test_a_refusal_of_one_rule_does_not_keep_the_others_back(error: type[ApiError], left: int) -> None:
    store = Store([Kind(NEW, "DeviceTaintRule")])
    virtual_time.run(writes_over(Choosy(store, error)).taint(news(2, 3), most=10))
    assert len(store.objects(NEW)) == 2 - left
    virtual_time.run(writes_over(MemoryApi(store)).taint(news(2, 3), most=10))
    there = news(rules=store.objects(NEW))
    virtual_time.run(writes_over(Choosy(store, error)).taint(there, most=10))
    assert len(store.objects(NEW)) == left
