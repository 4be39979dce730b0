"""kopf as the shell of the process: start, end, signals, login; and events of ClusterTopologies, which wake the loop.

What goes through kopf and what does not, and why: docs/decisions/0007-what-goes-through-kopf.md.
"""

import asyncio
import logging
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

from closeknit.api.names import GROUP, VERSION
from closeknit.cluster.store.watched_kinds import BY_STREAM, Stream
from closeknit.controller.process import Process, ended
from closeknit.kube.backoff import Backoff

# kopf imports the whole Kubernetes client, if it can be had, to know that one's objects in handlers that use them. Ours
# do not, and it is a fifth of the CPU time of a start (2.0 s instead of 2.6 s) and a quarter of its modules.
_client = sys.modules.get("kubernetes")
sys.modules["kubernetes"] = None  # type: ignore[assignment]
import kopf  # noqa: E402

if _client is None:
    del sys.modules["kubernetes"]
else:
    sys.modules["kubernetes"] = _client

FINALIZER = f"{GROUP}/never-set"  # kopf sets one only for handlers that we do not have
# kopf waits 5 s for its own requests when it ends; nothing of ours runs any more by then.
FAREWELL_S = 0.2
# Only peering would use it, which is off. Without it kopf looks for the user's name, and ends where a user is a mere
# number, as in a Pod; and for the host's name by DNS, which may take many seconds.
IDENTITY = "closeknit-operator"
BACKOFF = Backoff(first_s=0.5, longest_s=30.0)


class Backoffs:
    """Pauses between kopf's own requests while the API server does not answer: endless, where kopf would give up."""

    def __iter__(self) -> Iterator[float]:
        return map(BACKOFF.pause_s, count(1))


def settings() -> kopf.OperatorSettings:
    """kopf keeps its hands off: no Events, annotations, finalizers, no scan for kinds, no end for lack of answers."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.networking.request_timeout = 30
    chosen.networking.connect_timeout = 10
    chosen.networking.error_backoffs = Backoffs()
    chosen.watching.server_timeout = 600
    chosen.execution.default_backoff = 5
    chosen.persistence.finalizer = FINALIZER
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    chosen.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    return chosen


async def run(process: Process) -> None:
    """Runs until SIGTERM or SIGINT. Raises what ended the process if it was neither."""
    registry = kopf.OperatorRegistry()
    failed, stopped = asyncio.Event(), asyncio.Event()
    running: list[asyncio.Task[None]] = []

    @kopf.on.startup(registry=registry, id="start")
    async def start(**_: Any) -> None:
        task = asyncio.create_task(process.run(), name="closeknit")
        task.add_done_callback(lambda _: failed.set())
        running.append(task)

    @kopf.on.cleanup(registry=registry, id="stop")
    async def stop(**_: Any) -> None:
        await process.drain()
        for task in running:
            if not task.done():
                await ended(task)
        stopped.set()

    @kopf.on.login(registry=registry, id="login")
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        # The same order as in closeknit.kube.login.login: a kubeconfig, then the Pod's own account.
        return kopf.login_with_kubeconfig(**kwargs) or kopf.login_with_service_account(**kwargs)

    # kopf decodes what it watches by json, and what that cannot do ends it. So it watches no kind whose schema keeps
    # fields unseen: those of a TrainingJob's template are its author's.
    @kopf.on.event(GROUP, VERSION, BY_STREAM[Stream.CLUSTER_TOPOLOGIES].plural, registry=registry, id="wake")
    async def wake(**_: Any) -> None:
        process.wake()

    logging.getLogger("kopf").setLevel(logging.WARNING)
    stopping = asyncio.create_task(
        stopped.wait(), name="stopping"
    )  # before kopf, which ends every task that is younger
    operator = kopf.operator(
        registry=registry,
        settings=settings(),
        standalone=True,
        clusterwide=True,
        stop_flag=failed,
        identity=IDENTITY,  # type: ignore[arg-type]  # a NewType of str that kopf does not export
    )
    shell = asyncio.create_task(operator, name="kopf")
    await asyncio.wait({shell, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({shell}, timeout=FAREWELL_S)
    await ended(shell)
    stopping.cancel()
    for task in running:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
