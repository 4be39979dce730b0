"""An operator whose CRDs are older than it: the API server drops fields of a status without a word."""

import asyncio

import pytest

from closeknit.kube.api import JsonObject, Resource
from closeknit.kube.object_identity import Head
from faults import virtual_time
from faults.store import Store
from scenarios.manifests import training_job
from scenarios.operated import MortalApi, Operator, add
from scenarios.story import plugin_node

WATCHED_S = 3600.0


class OlderCrds(MortalApi):
    """Its TrainingJobs have no `status.pending.nearest`."""

    async def put_status(
        self, resource: Resource, name: str, body: JsonObject, *, namespace: str | None = None
    ) -> Head:
        if resource.plural == "trainingjobs":
            told = {**body["status"], "pending": dict(body["status"]["pending"])}
            del told["pending"]["nearest"]
            body = {**body, "status": told}
        return await super().put_status(resource, name, body, namespace=namespace)


def test_what_the_crd_lacks_is_not_written_for_ever_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    for manifest in (
        *plugin_node("gpu-1"),
        training_job("one", spec={"gpus": 64}),
        training_job("two", spec={"gpus": 64}),
    ):
        add(store, manifest)
    api = OlderCrds(store)
    operator = Operator(api)

    async def story() -> None:
        running = asyncio.create_task(operator.run())
        await asyncio.sleep(WATCHED_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    virtual_time.run(story())
    written = [call for call in api.calls if (call.verb, call.resource.plural) == ("put_status", "trainingjobs")]
    assert len(written) <= 2 * 2
    told = [each for each in caplog.records if each.message.startswith("the API server keeps not all of a status")]
    assert [vars(each)["fields"] for each in told] == [["status.pending.nearest"]]
