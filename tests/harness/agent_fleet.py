"""A thousand nodes with an agent's Pod on each, and a token bound to each, within seconds: by as many requests at once
as the API server takes.
"""

import asyncio
import json
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from harness.kubectl import kubeconfig_text, write_private
from harness.local_cluster import LocalCluster
from harness.machines import AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT, agent_pod

AT_ONCE = 40
PODS = f"/api/v1/namespaces/{AGENT_NAMESPACE}/pods"
TOKENS = f"/api/v1/namespaces/{AGENT_NAMESPACE}/serviceaccounts/{AGENT_SERVICE_ACCOUNT}/token"


def make_fleet(cluster: LocalCluster, nodes: Sequence[str], profile: str) -> Path:
    """A fleet file of these nodes, which it makes; each agent logs in with the token of its own Pod."""
    tokens = asyncio.run(_tokens(cluster, nodes))
    authority = (cluster.directory / "ca.crt").read_bytes()
    folder = cluster.directory / "fleet"
    folder.mkdir()
    members = []
    for node, token in zip(nodes, tokens, strict=True):
        kubeconfig = write_private(folder / f"{node}.kubeconfig", kubeconfig_text(cluster.server, authority, token))
        members.append({"name": node, "profile": profile, "kubeconfig": str(kubeconfig)})
    return write_private(folder / "fleet.yaml", json.dumps({"nodes": members}))


async def _tokens(cluster: LocalCluster, nodes: Sequence[str]) -> list[str]:
    tls = ssl.create_default_context(cafile=str(cluster.directory / "ca.crt"))
    tls.load_cert_chain(cluster.directory / "admin.crt", cluster.directory / "admin.key")
    connector = aiohttp.TCPConnector(ssl=tls, limit=AT_ONCE)
    no_hurry = aiohttp.ClientTimeout(total=None)  # its clock also runs for those who wait for a connection
    async with aiohttp.ClientSession(cluster.server, connector=connector, timeout=no_hurry, trust_env=False) as session:

        async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
            async with session.post(path, json=body) as answer:
                made: dict[str, Any] = await answer.json()
                assert answer.status == 201, made
                return made

        async def token(node: str) -> str:
            await post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
            pod = (await post(PODS, agent_pod(node)))["metadata"]
            bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["name"], "uid": pod["uid"]}
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
            spec = {"boundObjectRef": bound, "expirationSeconds": 2 * 3600}
            return str((await post(TOKENS, {**request, "spec": spec}))["status"]["token"])

        return await asyncio.gather(*map(token, nodes))
