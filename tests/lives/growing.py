"""People whose elastic job is small at first and grows in its Pods, and a policy that refuses the added ones by and by.

They disturb less than others: a job grows where there has been room for minutes.
"""

import random
from contextlib import suppress
from typing import TYPE_CHECKING

from closeknit.api.names import child_named
from closeknit.controller.writes.resources import PODS, TRAINING_JOBS
from closeknit.kube.api import JsonObject, Key, Resource
from closeknit.kube.errors import AlreadyExists, Forbidden
from lives.people import People
from scenarios.manifests import training_job

if TYPE_CHECKING:
    from lives.world import World

FEWEST = 4  # nodes: it has two at first
ABOUT_S = (1200.0, 4000.0)
LARGE, SMALL = "fay", "gus"


class Growers(People):
    """Two jobs, and whatever becomes of them."""

    name = "growers"

    def __init__(self, world: "World", chance: random.Random) -> None:
        super().__init__(world, chance)
        self._pace_s = chance.choice([40.0, 80.0, 160.0])
        self._namespace = chance.choice(["team-a", "team-a", "team-b"])
        self._refuses = chance.random() < 0.5
        self.acts = (
            (Growers._submit, 20),
            (Growers._turn, 20),
            (People._restart_operator, 12),
            (People._forget, 3),
            (People._crash, 4),
            (People._delete_pod, 4),
            (People._kill_or_revive, 3),
            (People._cordon_or_not, 2),
            (People._take_gpus, 2),
            (People._give_gpus, 6),
        )
        world.server.admission.append(self._admit)

    def leave(self) -> None:
        """The policy goes with them."""
        self._refuses = False
        super().leave()

    def _submit(self) -> None:
        size, nodes = self._world.size, len(self._world.kubelets)
        small: JsonObject = {"gpus": size * self.chance.randint(1, nodes - 2)}
        large: JsonObject = {"gpus": size * nodes, "elastic": {"minGPUs": 2 * size}, "restart": {"limit": 9}}
        trainer = {"name": "trainer", "image": "registry.example/train:1", "command": ["train"]}
        endless = self._world.training.endless
        (endless.add if self.chance.random() < 0.7 else endless.discard)(LARGE)
        for name, spec in ((SMALL, small), (LARGE, large)):
            body = training_job(
                name, namespace=self._namespace, spec={**spec, "template": {"spec": {"containers": [trainer]}}}
            )
            del body["metadata"]["uid"]
            with suppress(AlreadyExists, Forbidden):
                self.server.create(TRAINING_JOBS, body, namespace=self._namespace)

    def _turn(self) -> None:
        self._refuses = not self._refuses
        self._world.note(self.name, f"added Pods are {'refused' if self._refuses else 'taken'}")

    def _admit(self, resource: Resource, body: JsonObject, is_dry_run: bool) -> None:
        """See `api_server.Admission`: Pods that pass on trial are refused when they are made."""
        child = child_named(body["metadata"]["name"]) if resource == PODS else None
        if child is None or child.job != LARGE or not child.replacement or is_dry_run or not self._refuses:
            return
        job = self.server.view(TRAINING_JOBS).get(Key(self._namespace, LARGE), {})
        ends = job.get("status", {}).get("attempts") or [{}]
        if ends[-1].get("reason") == "Grown":  # what takes the place of another may come
            raise Forbidden("no Pod of the night", code=403, reason="Forbidden")
