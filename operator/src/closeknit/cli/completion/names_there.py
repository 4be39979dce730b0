"""Names of the cluster that kubectl would ask, for a shell that waits for them."""

from collections.abc import Mapping, Sequence
from typing import Any

import typer

LONGEST_S = 2.0  # who presses the key waits for no longer


def jobs(context: typer.Context, incomplete: str) -> list[str]:
    """TrainingJobs of the namespace that is meant so far."""
    return _names("closeknit.dev", "v1alpha1", "trainingjobs", context.params, incomplete, is_namespaced=True)


def nodes(context: typer.Context, incomplete: str) -> list[str]:
    """Nodes that have a NodeTopology."""
    return _names("closeknit.dev", "v1alpha1", "nodetopologies", context.params, incomplete)


def namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """Namespaces."""
    return _names("", "v1", "namespaces", context.params, incomplete)


def _names(
    group: str, version: str, plural: str, given: Mapping[str, Any], incomplete: str, *, is_namespaced: bool = False
) -> list[str]:
    import asyncio  # noqa: PLC0415 - a completion of words needs nothing of it
    from contextlib import redirect_stderr  # noqa: PLC0415
    from io import StringIO  # noqa: PLC0415

    from closeknit.cli.input.given import Reach  # noqa: PLC0415
    from closeknit.cli.live.cluster_connection import reached  # noqa: PLC0415
    from closeknit.kube.api import Resource  # noqa: PLC0415

    reach = Reach(given.get("kubeconfig"), given.get("context"))
    resource = Resource(group, version, plural, namespaced=is_namespaced)

    async def asked() -> Sequence[str]:
        async with asyncio.timeout(LONGEST_S), reached(reach, missing="") as api:
            namespace = None
            if is_namespaced and not given.get("everywhere"):
                namespace = given.get("namespace") or api.namespace
            return await api.names(resource, namespace=namespace)

    try:
        with redirect_stderr(StringIO()):  # a shell would show what a login program says amid the words typed so far
            found = asyncio.run(asked())
    except Exception:  # no shell shows why
        return []
    return sorted({name for name in found if name.startswith(incomplete)})
