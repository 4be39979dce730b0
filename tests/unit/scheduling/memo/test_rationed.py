"""A job that is not asked for want of budget is asked once there is some: nothing remembered keeps it waiting."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from closeknit.api.names import JobKey
from closeknit.cluster.cluster import build
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.lifecycle.verdict import Book, WaitCause
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.decision import decide
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.queue.entries import Schedule
from closeknit.scheduling.schedule import schedule
from scenarios.manifests import Manifest, cluster_topology, training_job
from unit.lifecycle.attempt.test_remains import RUNS, states
from unit.scheduling.policy.test_patience import held, racked
from unit.scheduling.test_incremental import Life, dra_nodes

MOST = 128  # questions of one namespace in one decision


def flood(namespace: str, questions: int) -> list[Manifest]:
    """As many older jobs that all ask something else."""
    jobs: list[Manifest] = []
    for number in range(questions):
        requests = {"resources": {"requests": {"cpu": f"{1000 + number}m"}}}
        template = {"spec": {"containers": [{"name": "trainer", "image": "i", **requests}]}}
        spec: dict[str, Any] = {"gpus": 48, "topology": {"gpusPerNode": 8}, "template": template}
        each = training_job(f"f-{number:03d}", namespace=namespace, spec=spec)
        each["metadata"] |= {"uid": f"uid-f-{number}", "creationTimestamp": "2020-01-01T00:00:00Z"}
        jobs.append(each)
    return jobs


def test_patience_that_ends_while_a_job_is_not_asked_has_ended() -> None:
    late = training_job(
        "late", namespace="team", spec={"gpus": 16, "topology": {"fabric": {"preferred": "rack", "patience": "10m"}}}
    )
    late["metadata"] |= {"uid": "uid-late", "creationTimestamp": "2026-11-21T10:00:00Z"}
    machines = [each for n in range(1, 9) for each in racked(f"gpu-{n}", "b1" if n < 5 else "b2", f"r{(n + 1) // 2}")]
    holders = [held(f"gpu-{n}") for n in (2, 4, 5, 6, 7, 8)]
    manifests = (cluster_topology("block", "rack"), *machines, *holders, *flood("team", MOST), late)
    cluster = build([value for each in manifests if (value := from_document(each)) is not None])
    tables, now = Tables(), datetime(2026, 11, 21, 10, 9, 59, tzinfo=UTC)
    found = schedule(cluster, tables, Memory(), now)
    key = JobKey("team", "late")
    assert cause(found, key) is WaitCause.NOT_ASKED
    for seconds in (2, 4, 6):
        found = schedule(cluster, tables, Memory(schedule=found), now + timedelta(seconds=seconds))
    assert isinstance(found[key], Book)


def left_behind() -> tuple[Life, JobKey, Manifest]:
    """A gang whose Pods are gone and whose claims are left: one is another Pod's, and so nobody's else."""
    life = Life(0, *dra_nodes("gpu-1", "gpu-2"))
    life.submit("train", {"gpus": 16, "topology": {"gpusPerNode": 8}})
    life.decide()
    life.story.run_all()
    life.decide()
    claims = {name: life.story.objects["ResourceClaim", "team-b", name] for name in life.story.names("ResourceClaim")}
    for name, claim in claims.items():
        life.story.remove_pod(name)
        life.story.add(claim)
    used = next(iter(claims.values()))
    kept = life.story.objects["ResourceClaim", "team-b", used["metadata"]["name"]]
    kept["status"]["reservedFor"] = [{"resource": "pods", "name": "copy", "uid": "uid-of-copy"}]
    for _ in range(4):
        life.decide()
    life.story.pass_time(120)
    return life, JobKey("team-b", "train"), kept


def test_a_claim_that_comes_free_while_its_job_is_not_asked_is_free() -> None:
    life, key, claim = left_behind()
    tables, found = Tables(), None
    for _ in range(2):
        found = seen(life, tables, found)
    claim["status"]["reservedFor"] = []
    for each in flood("team-b", MOST):
        life.story.add(each)
    for _ in range(4):
        found = seen(life, tables, found)
        life.story.pass_time(2)
    assert found is not None
    assert isinstance(found[key], Book)


def test_a_stopping_pod_is_deleted_as_soon_as_its_node_is_lost() -> None:
    life = Life(0, *dra_nodes("gpu-1", "gpu-2"))
    life.submit("train", {"gpus": 16, "topology": {"gpusPerNode": 8}})
    life.decide()
    life.story.run_all()
    names = life.story.pods()
    for name in names:
        life.story.change_pod(name, containerStatuses=states(RUNS))
    exited = states({"terminated": {"exitCode": 1, "reason": "Error"}})
    life.story.change_pod(names[0], phase="Failed", containerStatuses=exited)
    memory = Memory()
    for _ in range(5):
        memory = written(life, memory)
        life.story.pass_time(0.3)
    for node in ("gpu-1", "gpu-2"):
        life.story.lose_node(node)
    cluster = followed(life)
    memory = replace(memory, answers=life.story.answers)
    fresh = decide(cluster, Tables(), replace(memory, schedule=None, followed={}), life.story.now)
    found = decide(cluster, life.tables, memory, life.story.now)
    acts = [[type(action).__name__ for action in plan.actions] for plan in fresh.plans]
    assert acts == [["Delete"]]
    assert [[type(action).__name__ for action in plan.actions] for plan in found.plans] == acts


def followed(life: Life) -> Any:
    life.cluster = life._followed.of(life.story.objects, life.story.now)
    return life.cluster


def seen(life: Life, tables: Tables, last: Schedule | None) -> Schedule:
    return schedule(followed(life), tables, Memory(answers=life.story.answers, schedule=last), life.story.now)


def written(life: Life, memory: Memory) -> Memory:
    found = decide(followed(life), life.tables, replace(memory, answers=life.story.answers), life.story.now)
    for plan in found.plans:
        if plan.writes:
            life.story.write(plan)
    return replace(memory, schedule=found.schedule, followed=found.followed)


def cause(found: Schedule, key: JobKey) -> WaitCause:
    verdict = found[key]
    assert not isinstance(verdict, Book)
    return verdict.refusal.cause  # type: ignore[union-attr]
