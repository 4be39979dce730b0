"""What somebody with an agent's token may try: HTTP requests, also such as no client of ours would send."""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
TOPOLOGIES = "/apis/closeknit.dev/v1alpha1/nodetopologies"
NODES = "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request."""

    name: str
    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class Caller:
    """Sends requests with one token."""

    def __init__(self, server: str, token: str, authority: str) -> None:
        address = urlsplit(server)
        assert address.hostname and address.port
        self._connection = http.client.HTTPSConnection(
            address.hostname, address.port, context=ssl.create_default_context(cafile=authority), timeout=30
        )
        self._token = token

    def close(self) -> None:
        self._connection.close()

    def send(self, attempt: Attempt) -> tuple[int, str]:
        """Status code and the server's message; empty for an object."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": attempt.content_type, **attempt.headers}
        body = None if attempt.body is None else json.dumps(attempt.body)
        self._connection.request(attempt.method, attempt.path, body, headers)
        answer = self._connection.getresponse()
        said = answer.read()
        try:
            return answer.status, str(json.loads(said).get("message", ""))
        except (ValueError, AttributeError):
            return answer.status, said.decode(errors="replace")


def on_node(node: str, change: str, merge: Mapping[str, Any], operations: list[dict[str, Any]]) -> Iterator[Attempt]:
    """One change of a Node by every kind of patch; an apply also as somebody whom the node knows."""
    for kind in ("json", "merge", "strategic"):
        body = operations if kind == "json" else merge
        for query in ("", "?fieldManager=closeknit-agent", "?fieldManager=kubelet"):
            yield Attempt(f"{change}, {kind}{query}", "PATCH", f"{NODES}/{node}{query}", body, PATCHES[kind])
    applied = {"apiVersion": "v1", "kind": "Node", **merge}
    applied["metadata"] = {"name": node, **applied.get("metadata", {})}
    for manager in ("closeknit-agent", "kubelet", "other"):
        path = f"{NODES}/{node}?fieldManager={manager}&force=true"
        yield Attempt(f"{change}, applied as {manager}", "PATCH", path, applied, PATCHES["apply"])


def on_topology(name: str, change: str, merge: Mapping[str, Any], subresource: str = "") -> Iterator[Attempt]:
    """One change of a NodeTopology, or of its status, by every kind of patch."""
    path = f"{TOPOLOGIES}/{name}{subresource}"
    yield Attempt(f"{change}, merge", "PATCH", path, merge, PATCHES["merge"])
    operations = [
        {"op": "add", "path": f"/{part}/{key}", "value": value}
        for part, values in merge.items()
        for key, value in values.items()
    ]
    yield Attempt(f"{change}, json", "PATCH", path, operations, PATCHES["json"])
    applied = {"apiVersion": "closeknit.dev/v1alpha1", "kind": "NodeTopology", **merge}
    applied["metadata"] = {"name": name, **applied.get("metadata", {})}
    for manager in ("closeknit-agent", "other"):
        query = f"?fieldManager={manager}&force=true"
        yield Attempt(f"{change}, applied as {manager}", "PATCH", path + query, applied, PATCHES["apply"])
