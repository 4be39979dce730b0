"""Everybody who uses the cluster: they submit and delete, suspend and resume, cordon, and take what is free."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from closeknit.api.names import SPARE_FOR_LABEL, Role, child_name
from closeknit.controller.writes.resources import PODS, RESOURCE_CLAIMS, TRAINING_JOBS
from closeknit.kube.api import JsonObject, Key
from closeknit.kube.errors import Forbidden
from faults.kinds import NODES
from lives.api_server import FINISHED, RESOURCE_QUOTAS, key_of
from lives.hand import Hand
from lives.invariants import is_ours
from lives.kubelet import Kubelet
from scenarios.manifests import pod, training_job

if TYPE_CHECKING:
    from lives.world import World

NAMES = ("ada", "bob", "cyd", "dee", "eve")
ELASTIC = frozenset({"ada", "dee"})  # whose jobs over several machines can go on with one
QUEUE, QUEUED = "research", frozenset({"ada", "cyd", "eve"})  # whose jobs are of that queue
NAMESPACES = ("team-a", "team-b")
PRIORITIES = (None, None, None, "high", "low")
TAINT = {"key": "example/maintenance", "value": "yes", "effect": "NoSchedule"}


Acts = tuple[tuple[Callable[[Any], None], int], ...]
"""What people do, each with how often."""


class People(Hand):
    """Does one thing after another, at random."""

    name = "people"

    def __init__(self, world: "World", chance: random.Random) -> None:
        super().__init__(world.server, chance)
        self._world = world
        self._serial = 0
        self._busy_until = 0.0
        self._pace_s = chance.choice([3.0, 10.0, 40.0])
        self.acts: Acts = _ACTS

    def begin(self, until: float) -> None:
        """They are about until then."""
        self._busy_until = until
        for _ in range(self.chance.randint(1, 5)):
            self._submit()
        self.wake_at(self.time)

    def leave(self) -> None:
        """They go home, and leave some of what they did as it is."""
        for kubelet in self._world.kubelets.values():
            if not kubelet.is_alive and self.chance.random() < 0.5:
                self._revive(kubelet)
        for each in list(self.server.view(PODS).values()):
            if not is_ours(each) and self.chance.random() < 0.5:
                self.server.delete(PODS, key_of(each))

    def step(self) -> None:
        """One of the things that people do."""
        if self.time >= self._busy_until:
            return
        acts, weights = zip(*self.acts, strict=True)
        (act,) = self.chance.choices(acts, weights)
        with suppress(Forbidden):  # a quota is for everybody
            act(self)
        self.wake_at(self.time + self.chance.expovariate(1 / self._pace_s))

    def _submit(self) -> None:
        key = Key(self.chance.choice(NAMESPACES), self.chance.choice(NAMES))
        size, nodes = self._world.size, len(self._world.kubelets)
        gpus = self.chance.choice([1, 2, size - 1, size, size, 2 * size, (nodes - 1) * size, nodes * size])
        priority = self.chance.choice(PRIORITIES)
        if key in self.server.view(TRAINING_JOBS):
            return
        trainer: JsonObject = {"name": "trainer", "image": "registry.example/train:1"}
        if self.chance.random() < 0.6:
            trainer["command"] = ["train"]  # with which it can restart in place
        if cpu := self.chance.choice([None, None, "16", "100"]):
            trainer["resources"] = {"requests": {"cpu": cpu}}
        spec: JsonObject = {"gpus": max(1, gpus), "template": {"spec": {"containers": [trainer]}}}
        if self.chance.random() < 0.3:
            level, patience = self.chance.choice(["rack", "block"]), self.chance.choice(["10s", "10m", "30m"])
            spec["topology"] = {"fabric": {"preferred": level, "patience": patience}}
        if priority:
            spec["priorityClassName"] = priority
        if key.name in ELASTIC and gpus > size and gpus % size == 0:
            spec["elastic"] = {"minGPUs": size}
        if "elastic" not in spec and self.chance.random() < 0.25:
            spec["spares"] = self.chance.choice([1, 1, 2])
        if key.name in QUEUED:
            spec["queue"] = QUEUE
        if self.chance.random() < 0.25:
            spec["defragment"] = "OnRestart"
        spec |= self._end()
        if self.chance.random() < 0.25:  # what a swap of nodes is about: several Pods that can restart in place
            trainer["command"] = ["train"]
            spec |= {"gpus": min(2, nodes) * size, "restart": {"limit": 9}}
            spec.pop("elastic", None)
        body = training_job(key.name, namespace=key.namespace, spec=spec)
        del body["metadata"]["uid"]
        (self._world.training.endless.add if self.chance.random() < 0.3 else self._world.training.endless.discard)(
            key.name
        )
        self.server.create(TRAINING_JOBS, body, namespace=key.namespace)

    def _end(self) -> JsonObject:
        """How often a job starts again, how long it may take, and how long it is kept; mostly nothing of it."""
        spec: JsonObject = {}
        if limit := self.chance.choice([0, 0, 1, 2, 9, 9]):
            spec["restart"] = {"limit": limit, "window": self.chance.choice(["10m", "24h"])}
        if deadline_s := self.chance.choice([None, None, None, None, 60, 900]):
            spec["activeDeadlineSeconds"] = deadline_s
        if declared := self.chance.choice([None, None, "30s", "5m", "1h"]):
            spec["expectedDuration"] = declared
        if (kept_s := self.chance.choice([None, None, None, 0, 60, 86400])) is not None:
            spec["ttlSecondsAfterFinished"] = kept_s
        return spec

    def _job(self) -> JsonObject | None:
        jobs = list(self.server.view(TRAINING_JOBS).values())
        return self.chance.choice(jobs) if jobs else None

    def _delete(self) -> None:
        if job := self._job():
            self.server.delete(TRAINING_JOBS, key_of(job))

    def _suspend_or_resume(self) -> None:
        if job := self._job():
            self._edit(job, suspend=not job["spec"].get("suspend", False))

    def _change_priority(self) -> None:
        if job := self._job():
            self._edit(job, priorityClassName=self.chance.choice(["high", "low"]))

    def _mend(self) -> None:
        """Somebody asks for something else; once a job was booked the API server does not let him."""
        job = self._job()
        if job is None or "placement" in (status := job.get("status", {})) or status.get("attempts"):
            return
        self._serial += 1
        trainer = {"name": "trainer", "image": f"registry.example/train:mended-{self._serial}"}
        gpus = self.chance.randint(1, 2 * self._world.size)
        bounds = {"elastic": {"minGPUs": gpus}} if "elastic" in job["spec"] else {}
        self._edit(job, gpus=gpus, template={"spec": {"containers": [trainer]}}, **bounds)

    def _edit(self, job: JsonObject, **spec: Any) -> None:
        patch = [{"op": "add", "path": f"/spec/{field}", "value": value} for field, value in spec.items()]
        self.server.json_patch(TRAINING_JOBS, key_of(job), patch)

    def _crash(self) -> None:
        """A mistake in somebody's program."""
        if words := self._world.training.crash(self.chance, self.time):
            self._world.note(self.name, words)

    def _delete_pod(self) -> None:
        pods = [each for each in self.server.view(PODS).values() if is_ours(each)]
        if pods:
            self.server.delete(PODS, key_of(self.chance.choice(pods)))

    def _clean_up(self) -> None:
        for each in list(self.server.view(PODS).values()):
            if is_ours(each) and each["status"]["phase"] in FINISHED and self.chance.random() < 0.5:
                self.server.delete(PODS, key_of(each))

    def _cordon_or_not(self) -> None:
        key = self._node()
        spec = self.server.view(NODES)[key]["spec"]
        self.server.amend(NODES, key, spec={**spec, "unschedulable": not spec.get("unschedulable", False)})

    def _taint_or_not(self) -> None:
        key = self._node()
        spec = self.server.view(NODES)[key]["spec"]
        taints = [each for each in spec.get("taints") or () if each != TAINT]
        if len(taints) == len(spec.get("taints") or ()):
            taints.append(TAINT)
        self.server.amend(NODES, key, spec={**spec, "taints": taints})

    def _keep_or_not(self) -> None:
        """A node becomes a spare one of a queue, or an ordinary one again."""
        key = self._node()
        before = self.server.view(NODES)[key]["metadata"]["labels"]
        labels = {name: value for name, value in before.items() if name != SPARE_FOR_LABEL}
        if labels == before:
            labels[SPARE_FOR_LABEL] = QUEUE
        self.server.amend(NODES, key, metadata={"labels": labels})

    def _kill_or_revive(self) -> None:
        kubelet = self._world.kubelets[self._node().name]
        if kubelet.is_alive:
            reboots, is_cut = self.chance.random() < 0.5, self.chance.random() < 0.5
            kubelet.die(reboots=reboots, is_cut=is_cut)
            how = "" if reboots else ", though its Pods run on" + (", cut off" if is_cut else "")
            self._world.note(self.name, f"{kubelet.node} dies{how}")
        else:
            self._revive(kubelet)

    def _revive(self, kubelet: Kubelet) -> None:
        self._world.note(self.name, f"{kubelet.node} is back")
        kubelet.revive()

    def _take_cpus(self) -> None:
        """Somebody computes without GPUs."""
        self._serial += 1
        body = pod(f"simulation-{self._serial}", node=None, requests={"cpu": self.chance.choice(["32", "64", "120"])})
        del body["metadata"]["uid"]
        self.server.create(PODS, body, namespace="ml")

    def _take_gpus(self) -> None:
        """A notebook."""
        self._serial += 1
        name, count = f"notebook-{self._serial}", self.chance.randint(1, max(1, self._world.size // 2))
        is_by_claim = any(not each.is_plugin for each in self._world.kubelets.values()) and self.chance.random() < 0.6
        body = pod(name, node=None, requests={} if is_by_claim else {"nvidia.com/gpu": str(count)})
        del body["metadata"]["uid"]
        if is_by_claim:
            body["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": name}]
        made = self.server.create(PODS, body, namespace="ml")
        if is_by_claim:
            exactly = {"deviceClassName": "gpu.nvidia.com", "count": count}
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": made["metadata"]["uid"]}
            claim = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "ml", "ownerReferences": [owner]},
                "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
            }
            self.server.create(RESOURCE_CLAIMS, claim, namespace="ml")

    def _give_gpus(self) -> None:
        strangers = [each for each in self.server.view(PODS).values() if not is_ours(each)]
        if strangers:
            self.server.delete(PODS, key_of(self.chance.choice(strangers)))

    def _take_a_name(self) -> None:
        """Somebody has a Pod of the name that a job may want next."""
        if job := self._job():
            attempt = job.get("status", {}).get("attempt", 1) + self.chance.randint(0, 1)
            name = child_name(job["metadata"]["name"], attempt, Role.WORKER, 0)
            namespace = job["metadata"]["namespace"]
            if Key(namespace, name) not in self.server.view(PODS):
                body = pod(name, namespace=namespace, node=None, requests={})
                del body["metadata"]["uid"]
                self.server.create(PODS, body, namespace=namespace)

    def _change_quota(self) -> None:
        for key in list(self.server.view(RESOURCE_QUOTAS)):
            total = self._world.size * len(self._world.kubelets)
            pods, gpus = self.chance.randint(1, 8), self.chance.randint(1, total)
            hard = {"pods": str(pods), "requests.nvidia.com/gpu": str(gpus)}
            if self._world.limit_range is not None:
                hard |= self._world.limit_range.hard(pods)
            self.server.amend(RESOURCE_QUOTAS, key, spec={"hard": hard})

    def _change_policy(self) -> None:
        policy = self._world.policy
        policy.namespace = "" if policy.namespace else self.chance.choice(NAMESPACES)
        policy.first = self.chance.randint(0, 2)
        self._world.note(self.name, f"a policy refuses: {policy}")

    def _restart_operator(self) -> None:
        self._world.kill("by hand")

    def _forget(self) -> None:
        """The API server compacts its history, and cuts all streams."""
        self.server.compact()
        self._world.end_streams()

    def _node(self) -> Key:
        return self.chance.choice(sorted(self.server.view(NODES)))


_ACTS: Acts = (
    (People._submit, 30),
    (People._delete, 6),
    (People._suspend_or_resume, 8),
    (People._change_priority, 2),
    (People._mend, 6),
    (People._crash, 8),
    (People._delete_pod, 8),
    (People._clean_up, 3),
    (People._cordon_or_not, 5),
    (People._taint_or_not, 3),
    (People._keep_or_not, 4),
    (People._kill_or_revive, 7),
    (People._take_cpus, 3),
    (People._take_gpus, 8),
    (People._give_gpus, 8),
    (People._take_a_name, 2),
    (People._change_quota, 3),
    (People._change_policy, 2),
    (People._restart_operator, 4),
    (People._forget, 2),
)
