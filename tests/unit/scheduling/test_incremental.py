"""What is remembered from one decision to the next alters none: random lives, decided with a memory and without.

Who holds what is excluded follows later in a refusal's words, where it alters no placement.
"""

import random
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.names import IMEX_CHANNELS, JobKey
from closeknit.api.reasons import ConditionType, PendingReason
from closeknit.lifecycle.status.conditions import found, timestamp
from closeknit.lifecycle.verdict import Await, Book, Hold, Keep, Reserve, Verdict, Wait, WaitCause
from closeknit.lifecycle.writes.plan import Plan
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.decision import Decision, decide
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.policy import backlog
from closeknit.scheduling.policy.backlog import CROWD
from closeknit.scheduling.policy.probation import Probation
from closeknit.scheduling.reservation import reserve
from scenarios.fleets import GROUP, Fleet, Followed, job_of, spec_by, varied
from scenarios.manifests import (
    claiming,
    cluster_topology,
    device_class,
    node,
    pod,
    priority_class,
    resource_claim,
    storage_class,
    training_job,
    uuids,
    volume,
    volume_claim,
    worker,
)
from scenarios.networks import machine, nics
from scenarios.stories import WHOLE, unschedulable
from scenarios.story import Story, dra_node, plugin_node

STEPS = 60
SPECS = (
    {"gpus": 1},
    {"gpus": 2},
    {"gpus": 4},
    {"gpus": 8},
    {"gpus": 16},
    {"gpus": 16, "topology": {"gpusPerNode": 8}},
    {"gpus": 16, "topology": {"gpusPerNode": 8, "fabric": {"preferred": "rack", "patience": "2m"}}},
    {"gpus": 8, "topology": {"nvlink": "Required"}, "parallelism": {"tensor": 8}},
    {"gpus": 8, "preflight": "Warn"},
    {"gpus": 4, "spares": 1},
    {"gpus": 8, "template": claiming("data")},
    {"gpus": 2, "template": claiming(ephemeral={"storageClassName": "fast", "accessModes": ["ReadWriteMany"]})},
)


def essence(values: Iterable[object]) -> list[str]:
    """The values without who holds what."""
    return [re.sub(r"; \d+ excluded: [^'\"]*", "", repr(value)) for value in values]


def essence_on_trial(verdicts: Iterable[Verdict]) -> list[str]:
    """What is decided while GPUs are on trial: those who wait are not told why again, and may keep an older word."""
    return ["Wait" if isinstance(verdict, Wait) else str(verdict) for verdict in verdicts]


def _told(decision: Decision, busy: Container[JobKey]) -> dict[JobKey, Verdict]:
    """The verdicts as they are told: nothing is written for a busy job, so that what it holds has no words."""
    return {
        key: replace(verdict, message="") if isinstance(verdict, Hold) and key in busy else verdict
        for key, verdict in decision.schedule.items()
    }


class Life:
    """A Story of many jobs, and a Cluster that follows it change by change."""

    def __init__(self, seed: int, *machines: Mapping[str, Any]) -> None:
        """On these machines, or on four of its own."""
        self.chance = random.Random(seed)  # noqa: S311 - a life that can be lived again
        self.story = Story(priority_class("high", 100))
        if machines:
            for manifest in machines:
                self.story.add(manifest)
        else:
            self._stand()
        self._followed = Followed()
        self.cluster = self._followed.cluster
        self.tables = Tables()
        self.memory = Memory()
        self.made = 0
        self.seen: set[str] = set()

    def _stand(self) -> None:
        """The nodes are there."""
        machines = *plugin_node("gpu-1"), *plugin_node("gpu-2"), *dra_node("gpu-3"), *plugin_node("gpu-4")
        for manifest in (cluster_topology("block", "rack"), *machines):
            self.story.add(manifest)
        for number, block in enumerate(("b1", "b1", "b2", "b2"), start=1):
            labels = self.story.objects["Node", "", f"gpu-{number}"]["metadata"]["labels"]
            labels |= {"net.example/block": block, "net.example/rack": f"r{number}"}

    def _is_on_trial(self, decision: Decision) -> bool:
        """Whether a job is given GPUs that was refused the last time."""
        return any(
            isinstance(entry.verdict, Book | Await) and entry.answers.rejection is not None
            for entry in decision.schedule.entries
        )

    def step(self) -> None:
        """Something happens, everything is decided both ways, and some of that is written."""
        self.chance.choice(self._events())()
        jobs = self._jobs()
        busy = frozenset(JobKey("team-b", name) for name in self.chance.sample(jobs, k=min(1, len(jobs))))
        self.decide(busy, aside=busy if self.chance.random() < 0.3 else frozenset(), written=0.7)

    def _events(self) -> Sequence[Callable[[], None]]:
        return (
            self._submit, self._submit, self._run, self._end, self._remove, self._foreign, self._edit, self._sicken,
            self._blame, self._wait, self._forbid, self._terminate, self._terminate, self._lose, self._refuse,
            self._store, self._store,
        )  # fmt: skip

    def decide(
        self, busy: frozenset[JobKey] = frozenset(), *, aside: frozenset[JobKey] = frozenset(), written: float = 1
    ) -> None:
        """Everything is decided both ways, and a share of that is written."""
        self.cluster = self._followed.of(self.story.objects, self.story.now)
        memory = Memory(self.story.answers, busy, aside)
        remembering = replace(memory, schedule=self.memory.schedule, followed=self.memory.followed)
        fresh = decide(self.cluster, Tables(), memory, self.story.now)
        found = decide(self.cluster, self.tables, remembering, self.story.now)
        asked = Probation(self.cluster, memory, self.story.now).are_under_way()
        verdicts, fresh_verdicts = _told(found, busy), _told(fresh, busy)
        if asked or self._is_on_trial(found):  # whoever remembers words keeps them
            assert essence_on_trial(verdicts.values()) == essence_on_trial(fresh_verdicts.values())
        else:
            assert essence(verdicts.items()) == essence(fresh_verdicts.items())
            assert essence(plan for plan in found.plans if self._is_news(plan)) == essence(
                plan for plan in fresh.plans if self._is_news(plan)
            )
        self.memory = replace(memory, schedule=found.schedule, followed=found.followed)
        for verdict in found.schedule.values():
            self.seen.add(type(verdict).__name__)
        for plan in found.plans:
            if plan.writes and self.chance.random() < written:
                self.story.write(plan)

    def _is_news(self, plan: Plan) -> bool:
        """Whether it writes anything but who holds what is excluded."""
        if not plan.writes or plan.status is None or plan.actions or plan.notice is not None:
            return plan.writes
        return essence([plan.status]) != essence([self.cluster.jobs[plan.job].status])

    def _jobs(self) -> list[str]:
        return sorted(name for kind, _, name in self.story.objects if kind == "TrainingJob")

    def _submit(self) -> None:
        self.made += 1
        spec = self._spec()
        if self.chance.random() < 0.2:
            spec["priorityClassName"] = "high"
        self.submit(f"job-{self.made:03d}", spec)

    def _spec(self) -> dict[str, Any]:
        return dict(self.chance.choice(SPECS))

    def submit(self, name: str, spec: Mapping[str, Any]) -> None:
        """Somebody makes a job now."""
        job = training_job(name, spec=spec)
        job["metadata"]["creationTimestamp"] = timestamp(self.story.now)
        self.story.add(job)

    def _run(self) -> None:
        self.story.run_all()

    def _end(self) -> None:
        running = [name for name in self.story.pods() if name.startswith("job")]
        if running:
            phase = self.chance.choice(("Succeeded", "Succeeded", "Failed"))
            self.story.change_pod(self.chance.choice(running), phase=phase)

    def _remove(self) -> None:
        names = self.story.pods()
        if names:
            self.story.remove_pod(self.chance.choice(names))

    def _terminate(self) -> None:
        """Somebody deletes a Pod, which takes its time, or for ever on a node that is lost."""
        if names := [name for name in self.story.pods() if name.startswith("job")]:
            self.story.mark_deleted(self.chance.choice(names))

    def _store(self) -> None:
        """Something becomes of the claim that some jobs use, of its volume, or of its class."""
        claim, disk = ("PersistentVolumeClaim", "team-b", "data"), ("PersistentVolume", "", "disk")
        match self.chance.randrange(6):
            case 0:
                self.story.objects.pop(claim, None)
            case 1:
                self.story.add(volume_claim(selected_node=self.chance.choice(("", "gpu-2"))))
            case 2:
                self.story.add(volume_claim(volume="disk"))
            case 3:
                self.story.objects.pop(disk, None)
            case 4:
                hosts = self.chance.sample(("gpu-1", "gpu-2", "gpu-3", "gpu-4"), k=2)
                self.story.add(volume("disk", claim=self.chance.choice(("data", None)), hosts=hosts))
            case _:
                provisioner = self.chance.choice(("disk.example.com", "kubernetes.io/no-provisioner"))
                self.story.add(storage_class(waits=self.chance.random() < 0.8, provisioner=provisioner))

    def _lose(self) -> None:
        if "gpu-1" in self.story.dead:
            self.story.recover_node("gpu-1")
        else:
            self.story.lose_node("gpu-1")

    def _refuse(self) -> None:
        """The scheduler refuses a Pod for something else than its GPUs, for longer than is waited."""
        unbound = [name for name in self.story.pods() if not self.story.pod(name)["spec"].get("nodeName")]
        if unbound:
            self.story.change_pod(self.chance.choice(unbound), conditions=[unschedulable("1 Insufficient cpu")])

    def _foreign(self) -> None:
        if "notebook" in self.story.pods():
            self.story.remove_pod("notebook")
        else:
            self.story.add(pod("notebook", node="gpu-1", requests={"nvidia.com/gpu": "3"}))

    def _edit(self) -> None:
        if jobs := self._jobs():
            self.story.edit_job(self.chance.choice(jobs), suspend=self.chance.random() < 0.5)

    def _sicken(self) -> None:
        topology = self.story.objects[("NodeTopology", "", "gpu-2")]
        sick = {"gpus": [{"index": 3, "state": "Unhealthy", "reasons": ["XID79"]}]}
        topology["status"] = {} if topology["status"] else sick

    def _blame(self) -> None:
        """Runs have ended by a node or a GPU of it, or that is cleared."""
        node = f"gpu-{self.chance.randrange(1, 5)}"
        topology = self.story.objects[("NodeTopology", "", node)]
        gpu = self.chance.choice(({}, {"gpu": uuids(node, 3)[0]}))
        ends = [
            {
                "job": "team-b/old",
                "reason": "NodeLost",
                "ended": timestamp(self.story.now - timedelta(days=days)),
                **gpu,
            }
            for days in (3, 1)
        ]
        blamed = not topology["status"].pop("runEnds", None)
        topology["status"] |= {"runEnds": ends} if blamed else {}

    def _forbid(self) -> None:
        """The API server does not take the next Pods, or takes them again."""
        if self.story.forbidden:
            self.story.forbidden.clear()
        else:
            self.story.forbidden |= {f"{name}-a1-worker-00000": "denied by a policy" for name in self._jobs()}

    def _wait(self) -> None:
        self.story.pass_time(self.chance.choice((0.5, 3, 70)))


def dra_nodes(*names: str, gpus: int = 8, **labels: str) -> list[dict[str, Any]]:
    """Nodes whose GPUs NVSwitches join and claims bind."""
    found = [manifest for name in names for manifest in dra_node(name, gpus=gpus)]
    for manifest in found:
        if manifest["kind"] == "Node":
            manifest["metadata"]["labels"] |= labels
        if manifest["kind"] == "NodeTopology":
            manifest["spec"]["nvlink"] = {"switched": True, "linksPerGPU": [18] * gpus}
    return found


def test_channels_that_come_are_news_though_no_node_has_changed() -> None:
    """NVLink joins two trays once Pods can have IMEX channels, and a group waits for nothing else."""
    life = Life(0, *dra_nodes("tray-1", "tray-2", gpus=4, **{"nvidia.com/gpu.clique": "c0ffee.1"}))
    life.submit("train", {"gpus": 8, "parallelism": {"tensor": 8}, "topology": {"nvlink": "Required"}})
    for _ in range(2):
        life.decide()
    assert life.story.status("train").placement is None
    life.story.add(device_class(IMEX_CHANNELS))
    life.decide()
    assert life.story.status("train").placement is not None


def test_what_the_site_says_of_its_network_is_news_for_gangs_that_run() -> None:
    """Its traffic class marks nothing, until the site declares a value for it."""
    nodes = [*machine("gpu-1", nics("RoCE"), hca="8"), *machine("gpu-2", nics("RoCE"), hca="8")]
    fabric = {"trafficClasses": {"training": {"serviceLevel": 3}}}
    life = Life(0, cluster_topology(fabric=fabric), *nodes)
    life.submit("train", {**WHOLE, "network": {"trafficClass": "training"}})
    life.decide()
    life.story.run_all()
    for _ in range(2):
        life.decide()
    life.story.pass_time(3600)
    for _ in range(2):
        life.decide()
    assert "training marks nothing" in words_of(life, ConditionType.DEGRADED)
    life.story.add(cluster_topology(fabric={"trafficClasses": {"training": {"dscp": 26}}}))
    life.decide()
    assert "training marks nothing" not in words_of(life, ConditionType.DEGRADED)


def words_of(life: Life, kind: ConditionType) -> str:
    condition = found(life.story.status("train").conditions, kind)
    return "" if condition is None else condition.message


def test_a_claim_that_nobody_else_uses_any_more_is_free_for_its_job_alone() -> None:
    """A gang's Pods are gone and their claims are left, one of which another Pod uses, too: a copy for debugging."""
    life = Life(0, *dra_nodes("gpu-1", "gpu-2"))
    life.submit("train", {"gpus": 16, "topology": {"gpusPerNode": 8}})
    life.decide()
    life.story.run_all()
    life.decide()
    claims = {name: life.story.objects["ResourceClaim", "team-b", name] for name in life.story.names("ResourceClaim")}
    for name, claim in claims.items():
        life.story.remove_pod(name)
        life.story.add(claim)
    used, _ = claims.values()
    life.story.objects["ResourceClaim", "team-b", used["metadata"]["name"]]["status"]["reservedFor"] = [
        {"resource": "pods", "name": "copy", "uid": "uid-of-copy"}
    ]
    for _ in range(4):
        life.decide()
    assert life.story.status("train").placement is None
    life.story.objects["ResourceClaim", "team-b", used["metadata"]["name"]]["status"]["reservedFor"] = []
    for _ in range(2):
        life.decide()
    assert life.story.status("train").placement is not None


def test_a_node_that_recovers_gives_a_job_its_number_back() -> None:
    """Its Pod may never go while the node is lost, and the next attempt is to take another number: that is not
    written yet when the node is back."""
    left = worker("train", node="gpu-2", requests={"nvidia.com/gpu": "8"})
    life = Life(0, *plugin_node("gpu-1"), *plugin_node("gpu-2"), training_job(spec={"gpus": 8}), left)
    life.story.mark_deleted("train-a1-worker-00000")
    life.story.lose_node("gpu-2")
    life.decide(written=0)
    assert causes(life) == [WaitCause.NUMBER_HELD]
    life.story.recover_node("gpu-2")
    life.decide(written=0)
    assert causes(life) == [WaitCause.LEFTOVERS]


def causes(life: Life) -> list[WaitCause]:
    """Why jobs wait."""
    assert life.memory.schedule is not None
    return [verdict.refusal.cause for verdict in life.memory.schedule.values() if isinstance(verdict, Wait)]


class OfFleet(Life):
    """A Life on a fleet that has every feature at once, and changes."""

    def _stand(self) -> None:
        count = self.chance.choice((3, 4, 6))
        self._fleet = Fleet(self.chance, self.story.objects, nodes=count, put=self.story.add)
        self._specs = [spec_by(self.chance) | {"gpus": self.chance.choice((2, 4, 8))}, spec_by(self.chance) | GROUP]

    def _events(self) -> Sequence[Callable[[], None]]:
        return (
            self._submit, self._submit, self._run, self._end, self._remove, self._edit, self._wait, self._forbid,
            self._terminate, self._refuse, *[self._fleet.happen] * 6, *[self._fleet.join_otherwise] * 2,
        )  # fmt: skip

    def _spec(self) -> dict[str, Any]:
        job = None
        while job is None:
            spec = varied(self.chance.choice(self._specs), self.chance)
            job = job_of(spec)
        self._specs = [*self._specs, spec][-3:]
        if job["topology"]["fabric"].get("preferred"):
            job["topology"]["fabric"]["patience"] = "2m"
        return job


class OfQueue(Life):
    """A Life of large gangs and small jobs, most of which declare how long they run, on a cluster that is full."""

    def _events(self) -> Sequence[Callable[[], None]]:
        return (
            *[self._submit] * 4, *[self._run] * 3, *[self._finish] * 3, self._end, self._remove, self._edit,
            self._sicken, *[self._wait] * 3, self._forbid, self._terminate, self._lose, self._blame, self._foreign,
        )  # fmt: skip

    def _spec(self) -> dict[str, Any]:
        size = self.chance.choice((1, 4, 8, 8, 16, 16, 24))
        spec: dict[str, Any] = {"gpus": size, "topology": {"gpusPerNode": 8} if size > 8 else {}}
        if self.chance.random() < 0.15:
            spec["activeDeadlineSeconds"] = self.chance.choice((120, 3600))
        if self.chance.random() < 0.1:
            spec["spares"] = 1
        if self.chance.random() < 0.7:
            spec["expectedDuration"] = self.chance.choice(("30s", "5m", "20m", "1h"))
        return spec

    def _submit(self) -> None:
        if len(self._jobs()) < 7:  # more words than that are not written at once
            super()._submit()
        else:
            del self.story.objects["TrainingJob", "team-b", self._jobs()[0]]

    def _finish(self) -> None:
        """A whole gang is over."""
        names = {name.rsplit("-a", 1)[0] for name in self.story.pods() if name.startswith("job")}
        if names:
            job = self.chance.choice(sorted(names))
            for name in self.story.pods():
                if name.startswith(f"{job}-a"):
                    self.story.change_pod(name, phase="Succeeded")

    def _wait(self) -> None:
        self.story.pass_time(self.chance.choice((1, 30, 200, 900)))

    def decide(
        self, busy: frozenset[JobKey] = frozenset(), *, aside: frozenset[JobKey] = frozenset(), written: float = 1
    ) -> None:
        super().decide(busy, aside=aside, written=written)
        assert self.memory.schedule is not None
        for entry in self.memory.schedule.entries:
            if entry.is_behind:
                self.seen.add(PendingReason.BEHIND_RESERVATION)
            if isinstance(entry.verdict, Reserve):
                self.seen.add("dated" if entry.verdict.reservation.at is not None else "undated")
                assert entry.verdict.reservation.at is None or entry.verdict.reservation.at > self.story.now


def test_what_is_free_for_one_job_alone_is_asked_though_others_of_its_shape_are_refused_as_before() -> None:
    """Its node recovers with its Pod of before still there: nothing is free for anybody else."""
    life = Life(0)
    life.story.add(node("gpu-3", gpus=0))  # it had a device plugin before DRA
    for number in (2, 3, 4):
        life.story.add(pod(f"notebook-{number}", node=f"gpu-{number}", requests={"nvidia.com/gpu": "8"}))
    life.story.add(training_job("b", spec={"gpus": 8}))
    life.decide()
    life.story.run_all()
    life.decide()
    life.story.add(training_job("a", spec={"gpus": 8}))
    life.story.lose_node("gpu-1")
    life.story.mark_deleted("b-a1-worker-00000")
    for _ in range(3):
        life.decide()
    assert life.story.status("b").placement is None
    life.story.recover_node("gpu-1")
    life.decide()
    assert life.story.status("a").placement is None
    assert life.story.status("b").placement is not None


def test_patience_that_ends_unheard_is_over() -> None:
    """Nothing is free when it ends, so that what is told stays; then what comes free is no whole block."""
    life = Life(0)
    fabric = {"preferred": "block", "patience": "10m"}
    life.story.add(resource_claim("on-gpu-3", *(("gpu-3", index) for index in range(8))))
    for number in (1, 2, 4):
        life.story.add(pod(f"on-gpu-{number}", node=f"gpu-{number}", requests={"nvidia.com/gpu": "8"}))
    life.submit("train", {"gpus": 16, "topology": {"gpusPerNode": 8, "fabric": fabric}})
    life.decide()
    life.decide()
    life.story.pass_time(600)
    life.decide()
    del life.story.objects["ResourceClaim", "ml", "on-gpu-3"]
    del life.story.objects["Pod", "ml", "on-gpu-1"]
    life.decide()
    assert life.story.status("train").placement is not None


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "suspended"])
def test_who_gives_way_is_asked_again_as_soon_as_few_wait(*, is_deleted: bool) -> None:
    """It is too large for a rack, and half of each block is held. Nothing else changes but that others go."""
    life = Life(0)
    life.story.add(pod("notebook", node="gpu-2", requests={"nvidia.com/gpu": "8"}))
    life.story.add(resource_claim("on-gpu-3", *(("gpu-3", index) for index in range(8))))
    larger_than_a_rack = {"gpus": 12, "topology": {"fabric": {"required": "rack"}}}
    for number in range(CROWD - 1):
        life.story.add(training_job(f"other-{number}", spec=larger_than_a_rack))
    life.decide()
    fabric = {"preferred": "rack", "patience": "10m"}
    life.story.add(training_job("last", spec=larger_than_a_rack))
    life.decide()
    life.submit("train", {"gpus": 16, "topology": {"gpusPerNode": 8, "fabric": fabric}})
    for _ in range(3):
        life.decide()
    pending = life.story.status("train").pending
    assert pending is not None
    assert pending.reason == "WaitingForPreferred"
    if is_deleted:
        del life.story.objects["TrainingJob", "team-b", "other-0"]
    else:
        life.story.edit_job("other-0", suspend=True)
    for _ in range(3):
        life.decide()
    assert life.story.status("train").placement is not None


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5, 7, 8])
def test_with_a_memory_the_same_is_decided_as_without(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "CROWD", 1)  # more hardly ever wait in such a life
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
    assert {kind.__name__ for kind in (Keep, Book, Wait)} <= life.seen


@pytest.mark.parametrize("seed", [10, 4, 16, 24])
def test_with_a_memory_the_same_is_decided_on_a_fleet_of_every_kind(seed: int) -> None:
    life = OfFleet(seed)
    for _ in range(STEPS):
        life.step()
    assert {kind.__name__ for kind in (Keep, Book, Wait)} <= life.seen


@pytest.mark.parametrize(
    "seeds", [(0, 17, 22), pytest.param(range(100, 250), marks=pytest.mark.long)], ids=["", "long"]
)
def test_with_a_memory_the_same_is_decided_behind_a_reservation(
    seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserve, "AGED", timedelta(minutes=10))
    seen: set[str] = set()
    for seed in seeds:
        life = OfQueue(seed)
        for _ in range(STEPS):
            life.step()
        seen |= life.seen
    assert {"Keep", "Book", "Wait", "Reserve", "dated", "undated", "BehindReservation"} <= seen


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_with_a_memory_the_same_is_decided_in_many_lives(seed: int) -> None:
    life = OfFleet(seed)
    for _ in range(STEPS):
        life.step()
