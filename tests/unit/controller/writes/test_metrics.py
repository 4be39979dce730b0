"""What /metrics says of jobs has as many series as the operator's own lists have words, whatever tenants write."""

import asyncio
from typing import Any

from prometheus_client import CollectorRegistry

from closeknit.controller.metrics import totals
from closeknit.controller.writes.resources import PODS, TRAINING_JOBS
from closeknit.kube.api import Key
from closeknit.kube.errors import Forbidden
from faults import virtual_time
from faults.fault import Fault, Refuse
from faults.store import Store
from scenarios.manifests import CREATED, training_job
from scenarios.operated import MortalApi, Operator, add, set_status
from scenarios.story import plugin_node

JOBS = 30


def label_values(registry: CollectorRegistry) -> list[str]:
    return [value for family in registry.collect() for sample in family.samples for value in sample.labels.values()]


def series_of(registry: CollectorRegistry) -> int:
    return sum(len(family.samples) for family in registry.collect())


def test_no_label_has_a_word_of_a_tenant_or_of_a_webhook() -> None:
    """Each job says `evil-…` wherever its author, or who may write its status, has a word; a webhook gives a reason of
    its own for each Pod that it refuses."""
    store = Store(history=100_000)
    for manifest in plugin_node("gpu-1"):
        add(store, manifest)
    refusals = [
        Fault(Refuse(Forbidden("no", code=403, reason=f"evil-{number}")), "create", PODS, nth=number)
        for number in range(1, 9)
    ]
    operator = Operator(MortalApi(store, refusals))

    def submit(number: int, **spec: Any) -> None:
        evil = f"evil-{number}"
        labels = {"labels": {evil: evil}}
        template = {"metadata": labels, "spec": {"containers": [{"name": evil, "image": evil}]}}
        words = {"queue": evil, "priorityClassName": evil, "network": {"trafficClass": evil}, "template": template}
        add(store, training_job(evil, namespace=evil, spec={**words, **spec}))

    async def story() -> tuple[int, int]:
        running = asyncio.create_task(operator.run())
        before = 0
        for number in range(JOBS):
            submit(number, gpus=1) if number % 2 else submit(number, gpus=1, network={}, topology={"fabric": {}})
            await asyncio.sleep(5)
            evil = {"reason": f"evil-{number}", "message": "", "lastTransitionTime": CREATED}
            key = Key(f"evil-{number}", f"evil-{number}")
            told = [{"type": kind, "status": "True", **evil} for kind in ("Placed", "Degraded", f"evil-{number}")]
            set_status(store, TRAINING_JOBS, key, conditions=told)
            await asyncio.sleep(5)
            operator.metrics.show(totals(operator.sight.cluster))
            if number == JOBS // 2:
                before = series_of(operator.metrics.registry)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return before, series_of(operator.metrics.registry)

    before, after = virtual_time.run(story())
    assert [value for value in label_values(operator.metrics.registry) if "evil" in value] == []
    assert after <= before + 4, "a series for each job"
