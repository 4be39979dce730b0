"""The least that any client has to do for a gang: it creates Pods, each with its claim where it has one, and no more.

    python -m bench.bare_client KUBECONFIG FILE

FILE holds a JSON list of pairs: a Pod, and its claim or null. It prints `ready`. Then each line of standard input,
`{"namespace", "owner"}`, has all of them created in that namespace, the Pods with that owner and each claim with its
Pod's; a line `done` follows when they are. It writes through the operator's own HTTP client, as many calls at a time as
the operator.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from closeknit.controller.writes.resources import PODS, RESOURCE_CLAIMS
from closeknit.controller.writes.write_slots import IN_FLIGHT
from closeknit.kube.api import Api
from closeknit.kube.http.http_api import HttpApi

Body = dict[str, Any]


async def create_all(api: Api, pairs: list[tuple[Body, Body | None]], namespace: str, owner: Body) -> None:
    waiting = iter(pairs)

    async def create_some() -> None:
        for pod, claim in waiting:
            made = await api.make(PODS, owned(pod, namespace, owner), namespace=namespace)
            if claim is not None:
                by = {"apiVersion": "v1", "kind": "Pod", "name": made.name, "uid": made.uid, "controller": True}
                await api.make(RESOURCE_CLAIMS, owned(claim, namespace, by), namespace=namespace)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(create_some())


def owned(body: Body, namespace: str, owner: Body) -> Body:
    return {**body, "metadata": {**body["metadata"], "namespace": namespace, "ownerReferences": [owner]}}


async def main(kubeconfig: Path, pairs: list[tuple[Body, Body | None]]) -> None:
    async with await HttpApi.connect(kubeconfig=kubeconfig, user_agent="closeknit-bench/1") as api:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await create_all(api, pairs, **json.loads(line))
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())))
