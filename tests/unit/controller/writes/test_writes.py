"""A Plan as it is written: what the API server answers, as facts, and what is learnt of them."""

import asyncio
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.names import INDEX_LABEL, JobKey
from closeknit.api.reasons import PendingReason
from closeknit.cluster.store.watched_kinds import Stream
from closeknit.controller.in_flight import versions
from closeknit.controller.metrics import Metrics
from closeknit.controller.writes.resources import (
    EVENTS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SERVICES,
    TRAINING_JOBS,
)
from closeknit.controller.writes.rights import OWN_ACCESS_REVIEWS
from closeknit.controller.writes.write_slots import IN_FLIGHT, WriteSlots
from closeknit.controller.writes.writes import PODS_AHEAD, Writes
from closeknit.kube.api import Api, JsonObject, Key, Resource
from closeknit.kube.errors import ApiError, Forbidden, Invalid, Unavailable
from closeknit.lifecycle.writes.answers import NOTHING, Answers, after
from closeknit.lifecycle.writes.plan import Create, Delete, Plan, Stop
from closeknit.lifecycle.writes.quota_demand import AdmittedPod, QuotaDemand
from closeknit.lifecycle.writes.refusals import Refusing
from closeknit.lifecycle.writes.results import DenialKind, Result, StatusStored, unfinished
from faults import virtual_time
from faults.fault import Delay, Fault, Refuse
from faults.memory_api import MemoryApi
from faults.store import Store
from scenarios.manifests import training_job
from scenarios.operated import set_status
from scenarios.story import NOW, Story, dra_node, plugin_node

QUOTA = Forbidden("pods is forbidden: exceeded quota: one", code=403, reason="Forbidden")


class Powerless(MemoryApi):
    """An API server on which we have no right to create children."""

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        made = await super().create(resource, body, namespace=namespace, dry_run=dry_run)
        return {**made, "status": {"allowed": False}} if resource == OWN_ACCESS_REVIEWS else made


def booked(
    *, nodes: int = 4, node: Callable[[str], list[dict[str, Any]]] = plugin_node, **spec: Any
) -> tuple[Store, Plan]:
    """A store with a job alone, and the booking of its gang of so many Pods."""
    store = Store()
    body = training_job(spec={"gpus": 8 * nodes, **spec})
    body["metadata"] = {key: body["metadata"][key] for key in ("name", "namespace")}
    job = store.create(TRAINING_JOBS, body, namespace="team-b")
    story = Story(*(each for number in range(nodes) for each in node(f"gpu-{number}")), job)
    story.objects[("TrainingJob", "team-b", "train")] = job  # with the store's own resourceVersion
    (booking,) = story.plans()
    return store, booking


def writes_over(api: Api) -> Writes:
    return Writes(WriteSlots(api, Metrics().count_write), lambda: NOW, "test")


def written(
    *faults: Fault,
    nodes: int = 4,
    api: type[MemoryApi] = MemoryApi,
    node: Callable[[str], list[dict[str, Any]]] = plugin_node,
    **spec: Any,
) -> tuple[Answers, Sequence[Result], Store]:
    """The booking of a gang of so many Pods, written over an API server with these faults."""
    store, booking = booked(nodes=nodes, node=node, **spec)
    writes = writes_over(api(store, faults))
    results = virtual_time.run(writes.apply(booking))
    assert unfinished(results, booking.uid) is None
    return after(NOTHING, booking, results, NOW), results, store


def test_a_booking_is_written_whole() -> None:
    answers, results, store = written()
    assert (answers.rejection, answers.service_of) == (None, 1)
    assert len(store.objects(PODS)) == 4
    quotas_status_service_and_pods = 7
    assert len(results) == quotas_status_service_and_pods


@pytest.mark.parametrize("first", [2, 3], ids=["the second Pod and all after it", "the third and the fourth"])
def test_children_that_are_refused_together_count_as_one_refusal(first: int) -> None:
    """Else a gang behind a quota would wait for minutes after its first try."""
    refused = (Fault(Refuse(QUOTA), "create", PODS, nth=nth) for nth in range(first, 5))
    answers, _, _ = written(Fault(Delay(1.0), "create", PODS), *refused)  # all of them are under way at once
    rejection = answers.rejection
    assert rejection is not None
    assert (rejection.of, rejection.tries, answers.rejections) == (Refusing.CHILD, 1, 1)
    assert ": pods is forbidden: exceeded quota: one; free some of it, change spec.template" in rejection.message


def test_after_a_refused_child_no_more_of_its_gang_is_made() -> None:
    refused = [Fault(Refuse(QUOTA), "create", PODS, nth=2), Fault(Delay(1.0), "create", PODS, nth=3)]
    answers, _, store = written(*refused, nodes=24)
    assert answers.rejection is not None
    assert len(store.objects(PODS)) <= 1 + IN_FLIGHT


def pods_before_each_claim(nodes: int) -> list[int]:
    """How many Pods of a gang of so many were there when each claim was made, by the number of its Pod."""
    _, _, store = written(Fault(Delay(1.0), "create", PODS), nodes=nodes, node=dra_node)
    made = [write for write in store.writes if write.resource in {PODS, RESOURCE_CLAIMS}]
    before = {
        write.key.name: sum(each.resource == PODS for each in made[:at])
        for at, write in enumerate(made)
        if write.resource == RESOURCE_CLAIMS
    }
    assert len(before) == len(store.objects(PODS)) == nodes
    return [before[name] for name in sorted(before)]


def test_a_claim_of_a_large_gang_comes_when_many_pods_after_its_own_are_there() -> None:
    """Else the garbage collector hears of a claim before its Pod, and reads that Pod and the TrainingJob."""
    nodes = PODS_AHEAD + 2 * IN_FLIGHT
    first, *others = pods_before_each_claim(nodes)
    assert first == 1  # it shows whether claims are taken at all
    for index, pods in enumerate(others, start=1):
        assert pods >= min(nodes, index + PODS_AHEAD) - IN_FLIGHT


def test_claims_of_other_gangs_follow_their_pods_at_once() -> None:
    for index, pods in enumerate(pods_before_each_claim(PODS_AHEAD // 2)):
        assert pods <= index + IN_FLIGHT


def test_after_a_refused_claim_no_more_of_its_gang_is_made() -> None:
    refused = Fault(Refuse(QUOTA), "create", RESOURCE_CLAIMS, nth=2)
    answers, _, store = written(refused, nodes=3 * IN_FLIGHT, node=dra_node)
    assert answers.rejection is not None
    assert len(store.objects(RESOURCE_CLAIMS)) <= 1 + IN_FLIGHT


def test_where_the_first_pod_is_refused_nothing_more_is_made_or_told() -> None:
    answers, _, store = written(Fault(Refuse(QUOTA), "create", PODS, nth=1))
    assert answers.rejection is not None
    assert [len(store.objects(each)) for each in (PODS, EVENTS, SERVICES)] == [0, 0, 1]


class LimitRange(MemoryApi):
    """An API server that gives each container of a Pod 2 CPUs, where it asks for none."""

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        if resource == PODS:
            body = deepcopy(body)
            for container in body["spec"]["containers"]:
                container["resources"].setdefault("requests", {}).setdefault("cpu", "2")
        return await super().create(resource, body, namespace=namespace, dry_run=dry_run)


def quota(store: Store, **hard: str) -> None:
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cpus"}, "spec": {"hard": hard}}
    store.create(RESOURCE_QUOTAS, body, namespace="team-b")
    set_status(store, RESOURCE_QUOTAS, Key("team-b", "cpus"), hard=hard, used=dict.fromkeys(hard, "0"))


@pytest.mark.parametrize(("cpus", "made"), [("7", 1), ("8", 4)])
def test_the_first_pod_shows_what_a_limit_range_adds_to_all_of_them(cpus: str, made: int) -> None:
    store, booking = booked(nodes=4)
    quota(store, **{"requests.cpu": cpus})
    results = virtual_time.run(writes_over(LimitRange(store)).apply(booking))
    answers = after(NOTHING, booking, results, NOW)
    assert len(store.objects(PODS)) == made
    if made == 4:
        assert answers.rejection is None
        return
    rejection = answers.rejection
    assert rejection is not None
    assert (rejection.reason, rejection.of) == (PendingReason.QUOTA_EXCEEDED, Refusing.CHILD)
    assert "quota cpus: requests.cpu: asked 8, hard 7, used 0, left 7" in rejection.message
    assert rejection.made_pods
    assert [each.more for each in answers.admitted_lately(1, NOW)] == [dict.fromkeys(("cpu", "requests.cpu"), 2000)]
    assert answers.admitted_lately(2, NOW) == answers.admitted_lately(1, NOW + timedelta(hours=13)) == ()


def test_what_was_added_before_refuses_nothing_by_itself() -> None:
    """A gang that restarts tries nothing: the LimitRange may be gone, and the first Pod shows that."""
    store, booking = booked(nodes=4)
    quota(store, **{"requests.cpu": "7"})
    before = AdmittedPod("worker", "0", {"requests.cpu": 2000}, "", has_deadline=False)
    virtual_time.run(writes_over(MemoryApi(store)).apply(replace(booking, admitted=(before, before))))
    assert len(store.objects(PODS)) == 4


@pytest.mark.parametrize(("left", "is_taken"), [("6", True), ("5", False)])
def test_what_was_added_before_counts_where_a_pod_on_trial_shows_nothing(left: str, is_taken: bool) -> None:
    """A preemptor's Pod is refused for the GPUs alone, which its victims give back; the CPUs of the LimitRange would be
    too many after that, too."""
    store, booking = booked(nodes=4)
    hard = {"requests.cpu": "8", "requests.nvidia.com/gpu": "32"}
    quota(store, **hard)
    used = {"requests.cpu": str(8 - int(left)), "requests.nvidia.com/gpu": "32"}
    set_status(store, RESOURCE_QUOTAS, Key("team-b", "cpus"), hard=hard, used=used)
    asked = "requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=32, limited: requests.nvidia.com/gpu=32"
    refusal = Forbidden(f"exceeded quota: cpus, requested: {asked}", code=403, reason="Forbidden")
    assert booking.demand is not None
    going = QuotaDemand({"requests.cpu": 2000, "requests.nvidia.com/gpu": 32}, {})
    plan = replace(
        booking,
        demand=replace(booking.demand, given_back=(going,)),
        probes=(booking.opening[-1].manifest,),
        admitted=(AdmittedPod("worker", "0", {"requests.cpu": 2000}, "", has_deadline=False),),
        opening=(),
        actions=(),
    )
    fault = Fault(Refuse(refusal), "create", PODS)
    results = virtual_time.run(writes_over(MemoryApi(store, [fault])).apply(plan))
    assert any(isinstance(result, StatusStored) for result in results) is is_taken


def test_pods_that_a_quota_refuses_when_they_are_made_are_made_seldom() -> None:
    """No quota is seen that tells why: others of the gang were made in vain."""
    answers, _, _ = written(Fault(Refuse(QUOTA), "create", PODS, nth=3))
    assert answers.rejection is not None
    assert (answers.rejection.retry_at - NOW).total_seconds() == 15


class RankZero(MemoryApi):
    """An API server that gives the first Pod of a gang 4 CPUs."""

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        if resource == PODS and body["metadata"]["labels"][INDEX_LABEL] == "0":
            body = deepcopy(body)
            body["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "4"}
        return await super().create(resource, body, namespace=namespace, dry_run=dry_run)


@pytest.mark.parametrize(("cpus", "made"), [("5", 4), ("3", 1)])
def test_what_is_added_to_the_first_pod_alone_is_not_taken_for_all(cpus: str, made: int) -> None:
    store, booking = booked(nodes=4)
    quota(store, **{"requests.cpu": cpus})
    results = virtual_time.run(writes_over(RankZero(store)).apply(booking))
    assert len(store.objects(PODS)) == made
    rejection = after(NOTHING, booking, results, NOW).rejection
    assert (rejection is None) is (made == 4)
    assert rejection is None or (rejection.of is Refusing.CHILD and "asked 4, hard 3" in rejection.message)


def test_the_second_pod_may_be_the_one_that_was_tried() -> None:
    """It was refused for something else before."""
    store, booking = booked(nodes=4)
    quota(store, **{"requests.cpu": "7"})
    second = booking.actions[0]
    assert isinstance(second, Create)
    virtual_time.run(writes_over(LimitRange(store)).apply(replace(booking, probes=(second.manifest,))))
    assert store.objects(PODS) == []


@pytest.mark.parametrize(("cpus", "is_taken"), [("7", False), ("8", True)])
def test_a_pod_on_trial_shows_it_before_anything_is_made(cpus: str, is_taken: bool) -> None:
    store, booking = booked(nodes=4)
    quota(store, **{"requests.cpu": cpus})
    first, second = booking.opening[-1].manifest, booking.actions[0]
    assert isinstance(second, Create)
    on_trial = replace(booking, probes=(first, second.manifest))  # two of one role: it is counted once
    results = virtual_time.run(writes_over(LimitRange(store)).apply(on_trial))
    assert any(isinstance(result, StatusStored) for result in results) is is_taken
    assert len(store.objects(PODS)) == (4 if is_taken else 0)


@pytest.mark.parametrize(
    ("api", "faults", "reason"),
    [
        pytest.param(Powerless, [], PendingReason.NAMESPACE_NOT_SERVED, id="without the right"),
        pytest.param(MemoryApi, [], PendingReason.QUOTA_EXCEEDED, id="with it, admission refuses"),
        pytest.param(
            Powerless,
            [Fault(Refuse(Unavailable("down", code=503)), "create", OWN_ACCESS_REVIEWS)],
            PendingReason.QUOTA_EXCEEDED,
            id="nobody can tell",
        ),
    ],
)
def test_a_namespace_that_is_not_served_is_told_from_what_admission_refuses(
    api: type[MemoryApi], faults: list[Fault], reason: PendingReason
) -> None:
    """The words of the refusal are the same: nothing is read from them."""
    answers, _, store = written(Fault(Refuse(QUOTA), "create", SERVICES), *faults, api=api)
    assert answers.rejection is not None
    assert answers.rejection.reason is reason
    told = "have an administrator add team-b to rbac.namespaces" in answers.rejection.message
    assert told is (reason is PendingReason.NAMESPACE_NOT_SERVED)
    assert store.objects(PODS) == store.objects(SERVICES) == []


@pytest.mark.parametrize("api", [Powerless, MemoryApi])
def test_pods_that_may_not_be_deleted_are_remembered_with_the_reason(api: type[MemoryApi]) -> None:
    pods = tuple(Delete("Pod", f"train-a1-worker-{number:05d}", "uid") for number in range(2))
    plan = Plan(JobKey("team-b", "train"), "uid", "1", 1, 1, actions=pods)
    store = Store()
    asked: list[str] = []

    class Counted(api):  # type: ignore[misc, valid-type]
        async def create(self, resource: Resource, body: JsonObject, **options: Any) -> JsonObject:
            asked.append(body["spec"]["resourceAttributes"]["verb"])
            return await super().create(resource, body, **options)  # type: ignore[no-any-return]

    refused = [Fault(Refuse(Forbidden("no", code=403, reason="Forbidden")), "delete", PODS)]
    writes = writes_over(Counted(store, refused))
    answers = after(NOTHING, plan, virtual_time.run(writes.apply(plan)), NOW)
    assert answers.undeleted is not None
    assert answers.undeleted.names == ("train-a1-worker-00000", "train-a1-worker-00001")
    assert answers.undeleted.denial.failure is (DenialKind.NO_RIGHT if api is Powerless else DenialKind.FORBIDDEN)
    assert set(asked) == {"delete"}


def stop(pod: str, uid: str | None = None, *faults: Fault) -> tuple[Answers, Sequence[Result], Store]:
    """One Pod of a gang is to be stopped, over an API server with these faults."""
    _, _, store = written()
    there = {each["metadata"]["name"]: each["metadata"]["uid"] for each in store.objects(PODS)}
    plan = Plan(JobKey("team-b", "train"), "uid", "1", 1, 1, actions=(Stop(pod, uid or there.get(pod, "gone")),))
    writes = writes_over(MemoryApi(store, faults))
    results = virtual_time.run(writes.apply(plan))
    return after(NOTHING, plan, results, NOW), results, store


def deadlines(store: Store) -> list[object]:
    return [pod["spec"].get("activeDeadlineSeconds") for pod in store.objects(PODS)]


def test_a_pod_is_stopped_by_a_deadline_and_is_waited_for_in_its_stream() -> None:
    answers, results, store = stop("train-a1-worker-00001")
    assert (deadlines(store), answers.stop_refused) == ([None, 1, None, None], False)
    assert versions(results) == {Stream.CHILD_PODS: str(store.rv)}


@pytest.mark.parametrize(("pod", "uid"), [("train-a1-worker-00009", None), ("train-a1-worker-00001", "another")])
def test_a_pod_that_is_gone_or_is_another_by_now_is_left_alone(pod: str, uid: str | None) -> None:
    answers, results, store = stop(pod, uid)
    assert (deadlines(store), unfinished(results, "uid"), answers.stop_refused) == ([None] * 4, None, False)


@pytest.mark.parametrize(
    "refused",
    [
        Forbidden('pods "x" is forbidden: cannot patch', code=403, reason="Forbidden"),
        Invalid('pods "x" is invalid: a policy denied the request', code=422, reason="Invalid"),
    ],
    ids=["403", "422"],
)
def test_that_a_pod_may_not_be_stopped_is_remembered(refused: ApiError) -> None:
    answers, _, store = stop("train-a1-worker-00001", None, Fault(Refuse(refused), "json_patch", PODS))
    assert (deadlines(store), answers.stop_refused) == ([None] * 4, True)


def preempt(*faults: Fault, condition: bool = True) -> tuple[list[str], list[Any]]:
    """Two Pods of a gang are to end for another job, one stopped and one deleted; what was sent, and what is left."""
    _, _, store = written()
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in store.objects(PODS)}
    first, second = list(uids)[:2]
    for pod in (first, second) if condition else ():
        store.json_patch(PODS, Key("team-b", pod), [_SCHEDULED], subresource="status")
    before = len(store.writes)
    actions = (
        Stop(first, uids[first], is_preempted=True),
        Delete("Pod", second, uids[second], is_preempted=True),
    )
    plan = Plan(JobKey("team-b", "train"), "uid", "1", 1, 1, actions=actions)
    writes = writes_over(MemoryApi(store, faults))
    assert unfinished(virtual_time.run(writes.apply(plan)), "uid") is None
    left = {each["metadata"]["name"]: each for each in store.objects(PODS)}
    said = left[first]["status"].get("conditions", [])[1:]
    assert (left[first]["spec"]["activeDeadlineSeconds"], second in left) == (1, False)
    return [f"{each.verb} {each.key.name[-1]}" for each in store.writes[before:]], said


_SCHEDULED = {"op": "add", "path": "/status/conditions", "value": [{"type": "PodScheduled", "status": "True"}]}


def test_a_pod_that_makes_room_says_so_before_it_ends() -> None:
    sent, said = preempt()
    assert sorted(sent) == ["delete 1", "json_patch 0", "json_patch 0", "json_patch 1"]
    assert sent.index("json_patch 1") < sent.index("delete 1")
    assert said == [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "closeknit: its TrainingJob makes room for another one",
            "lastTransitionTime": "2026-11-21T10:00:00Z",
        }
    ]


@pytest.mark.parametrize("error", [Forbidden, Unavailable])
def test_it_ends_though_it_may_not_say_so(error: type[ApiError]) -> None:
    sent, said = preempt(Fault(Refuse(error("no", code=403, reason="no")), "json_patch", PODS, nth=1))
    assert (sorted(sent), said) == (["delete 1", "json_patch 0"], [])


def test_a_pod_that_no_scheduler_has_spoken_of_ends_without_a_word() -> None:
    sent, said = preempt(condition=False)
    assert (sorted(sent), said) == (["delete 1", "json_patch 0"], [])


def test_a_service_that_is_deleted_is_no_longer_known_to_exist() -> None:
    """The attempt may begin again under its number, and its create may fail."""
    plan = Plan(JobKey("team-b", "train"), "uid", "1", 1, 2, actions=(Delete("Service", "train-a2"),))
    writes = writes_over(MemoryApi(Store()))
    for known, then in ((2, 0), (3, 3)):
        results = virtual_time.run(writes.apply(plan))
        assert after(replace(NOTHING, service_of=known), plan, results, NOW).service_of == then


def test_a_service_that_is_going_is_no_service_of_the_attempt() -> None:
    """A booking that was taken back began under the same number. Its Service may outlast its deletion by a finalizer,
    and a gang that took it for its own would lose its names once that is done."""

    class Going(MemoryApi):
        async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> JsonObject:
            there = await super().get(resource, name, namespace=namespace)
            if resource == SERVICES:
                there["metadata"] |= {"deletionTimestamp": "2026-11-21T10:00:00Z", "finalizers": ["site.example/dns"]}
            return there

    store, booking = booked()
    (service,) = [each.manifest for each in booking.opening if each.manifest["kind"] == "Service"]
    store.create(SERVICES, deepcopy(service), namespace="team-b")
    writes = writes_over(Going(store))
    results = virtual_time.run(writes.apply(booking))
    assert unfinished(results, booking.uid) is not None
    assert after(NOTHING, booking, results, NOW).service_of == 0
    assert store.objects(PODS) == []


def test_a_gang_is_written_by_no_more_tasks_than_calls_may_be_under_way() -> None:
    gone = tuple(Delete("Pod", f"train-a1-worker-{number}", f"u-{number}") for number in range(100))
    plan = Plan(JobKey("team-b", "train"), "uid", "1", 1, 2, actions=gone)
    api = MemoryApi(Store(), [Fault(Delay(1.0), "delete", PODS)])
    writes = writes_over(api)

    async def story() -> Sequence[Result]:
        writing = asyncio.create_task(writes.apply(plan))
        await asyncio.sleep(0.5)
        assert len(api.calls) == IN_FLIGHT
        assert len(asyncio.all_tasks()) <= IN_FLIGHT + 2  # this one and the Plan's
        return await writing

    assert len(virtual_time.run(story())) == len(gone)


@pytest.mark.parametrize(
    ("change", "node", "words"),
    [
        pytest.param(
            lambda spec: spec["containers"][0].update(resources={}),
            plugin_node,
            "it asks for no GPU instead of 8 nvidia.com/gpu",
            id="no GPU",
        ),
        pytest.param(
            lambda spec: spec["containers"][0].update(resources={"limits": {"nvidia.com/gpu": "4"}}),
            plugin_node,
            "it asks for 4 nvidia.com/gpu instead of 8 nvidia.com/gpu",
            id="fewer GPUs",
        ),
        pytest.param(
            lambda spec: spec.pop("resourceClaims"),
            dra_node,
            "its claims are none instead of train-a1-worker-00000",
            id="no claim",
        ),
        pytest.param(
            lambda spec: spec.pop("affinity"),
            plugin_node,
            "it is for node (any) instead of gpu-0",
            id="no node",
        ),
        pytest.param(
            lambda spec: spec.update(restartPolicy="OnFailure"),
            plugin_node,
            'its restartPolicy is "OnFailure" instead of "Never"',
            id="a rank that is restarted alone",
        ),
        pytest.param(
            lambda spec: spec["containers"][0].update(restartPolicy="Always"),
            plugin_node,
            'restartPolicy of its container trainer is "Always" instead of missing',
            id="a trainer that is restarted alone",
        ),
        pytest.param(
            lambda spec: spec.update(subdomain="ours"),
            plugin_node,
            'its subdomain is "ours" instead of "train-a1"',
            id="another name in the DNS",
        ),
        pytest.param(
            lambda spec: variable(spec, "MASTER_ADDR").update(value="10.0.0.1"),
            plugin_node,
            'MASTER_ADDR in its container trainer is "10.0.0.1" instead of "train-a1-worker-00000.train-a1.team-b.svc"',
            id="a variable that is overwritten",
        ),
        pytest.param(
            lambda spec: spec["containers"][0]["env"].append({"name": "MASTER_ADDR", "value": "10.0.0.1"}),
            plugin_node,
            'MASTER_ADDR in its container trainer is "10.0.0.1" instead of "train-a1-worker-00000.train-a1.team-b.svc"',
            id="a variable that is set again behind ours",
        ),
        pytest.param(
            lambda spec: spec["containers"][0]["env"].remove(variable(spec, "CUDA_DEVICE_ORDER")),
            plugin_node,
            'CUDA_DEVICE_ORDER in its container trainer is missing instead of "PCI_BUS_ID"',
            id="a variable that is removed",
        ),
    ],
)
def test_a_gang_whose_first_pod_is_changed_on_its_way_is_refused(
    change: Callable[[dict[str, Any]], object], node: Callable[[str], list[dict[str, Any]]], words: str
) -> None:
    """Not made again and again: the Pod that the watch shows would end one attempt after the other."""

    class Changing(MemoryApi):
        async def create(
            self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
        ) -> JsonObject:
            if resource == PODS:
                body = deepcopy(body)
                change(body["spec"])
            return await super().create(resource, body, namespace=namespace, dry_run=dry_run)

    answers, _, store = written(api=Changing, node=node)
    rejection = answers.rejection
    assert rejection is not None
    assert (rejection.reason, rejection.of) == (PendingReason.CHANGED_ON_THE_WAY, Refusing.CHILD)
    assert f"makes Pod team-b/train-a1-worker-00000 otherwise than it was sent: {words}; " in rejection.message
    assert len(store.objects(PODS)) == 1  # which goes with the booking


def test_what_a_site_adds_and_what_it_changes_of_the_users_own_is_left_to_it() -> None:
    class Adding(MemoryApi):
        async def create(
            self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
        ) -> JsonObject:
            if resource == PODS:
                body = deepcopy(body)
                body["spec"]["containers"][0]["env"] += [{"name": "HTTP_PROXY", "value": "http://proxy"}]
                body["spec"]["containers"] += [{"name": "mesh", "image": "mesh", "restartPolicy": "Always"}]
                body["spec"]["terminationGracePeriodSeconds"] = 5
                variable(body["spec"], "STAGE")["value"] = "production"
            return await super().create(resource, body, namespace=namespace, dry_run=dry_run)

    container = {"name": "trainer", "image": "i", "env": [{"name": "STAGE", "value": "test"}]}
    answers, _, store = written(api=Adding, template={"spec": {"containers": [container]}})
    assert answers.rejection is None
    assert len(store.objects(PODS)) == 4


def variable(spec: dict[str, Any], name: str) -> dict[str, Any]:
    """The variable of this name in the trainer."""
    env: list[dict[str, Any]] = spec["containers"][0]["env"]
    return next(entry for entry in env if entry["name"] == name)
