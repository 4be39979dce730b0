"""What the GPUs of one node do at this moment: the /metrics of its agent, asked for through the API server.

The API server's proxy to a Pod needs no way from here to the node. It takes the caller's own login off the request, and
the agent refuses requests without one: so a token is made that may read them and nothing else, of a
ServiceAccount that an administrator has made for it. The caller's own token never reaches a node.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from closeknit.api.text.printable import printable
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.topology.gpu_activity import GpuActivity, moments
from closeknit.kube.api import Resource
from closeknit.kube.errors import ApiError, Forbidden, NotFound, Unauthorized
from closeknit.kube.http.http_api import HttpApi
from closeknit.runtime.proxied_caller import PROXIED

PODS = Resource("", "v1", "pods", namespaced=True)
AGENTS = "app.kubernetes.io/name=closeknit,app.kubernetes.io/component=agent"
READER = "closeknit-live"  # the ServiceAccount, in the namespace of the agents
TOKEN_S = 600  # the shortest that an API server gives; it is renewed long before
PORT = "http"  # as the Pod names it; the API server's proxy to a Pod takes numbers alone, and panics at names


class _Port(msgspec.Struct):
    number: int = msgspec.field(name="containerPort")
    name: str = ""


class _Container(msgspec.Struct):
    ports: list[_Port] = []


class _PodSpec(msgspec.Struct):
    containers: list[_Container]


class _PodName(msgspec.Struct):
    namespace: str
    name: str


class _Pod(msgspec.Struct):
    metadata: _PodName
    spec: _PodSpec


class AgentMetrics:
    """The agent of one node."""

    def __init__(self, api: HttpApi, namespace: str, pod: str, port: int) -> None:
        self._api = api
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods/https:{pod}:{port}/proxy/metrics"
        self._token = ""

    @classmethod
    async def of(cls, api: HttpApi, node: str) -> "AgentMetrics":
        """Raises NotThere and ApiError."""
        page = await api.list(PODS, label_selector=AGENTS, field_selector=f"spec.nodeName={node},status.phase=Running")
        for item in page.items:
            found = msgspec.json.decode(item, type=_Pod)
            ports = [port.number for each in found.spec.containers for port in each.ports if port.name == PORT]
            if ports:
                return cls(api, found.metadata.namespace, found.metadata.name, ports[0])
        raise NotThere(printable(f"no agent runs on node {node}, so nobody knows what its GPUs do at the moment"))

    async def moments(self) -> Mapping[int, GpuActivity]:
        """NVML index -> what that GPU does. Raises NotThere and ApiError."""
        for _ in range(2):
            if not self._token:
                self._token = await self._reader()
            try:
                return moments(await self._api.text(self._path, {PROXIED: f"Bearer {self._token}"}))
            except Unauthorized:  # it has ended
                self._token = ""
        raise NotThere(f"the agent takes no token of {READER}")

    async def _reader(self) -> str:
        tokens = Resource("", "v1", f"serviceaccounts/{READER}/token", namespaced=True)
        body: dict[str, Any] = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_S},
        }
        try:
            answer = await self._api.create(tokens, body, namespace=self._namespace)
        except (NotFound, Forbidden) as error:
            raise NotThere(printable(self._how_to(error))) from error
        return str(answer["status"]["token"])

    def _how_to(self, error: ApiError) -> str:
        account = f"{self._namespace}:{READER}"
        return (
            f"the agent shows its values to tokens that may get /metrics, and there is none of {READER}: {error}. "
            f"An administrator makes it once: kubectl create serviceaccount {READER} -n {self._namespace}; "
            f"kubectl create clusterrolebinding {READER} --clusterrole=closeknit-metrics-reader "
            f"--serviceaccount={account}. Who looks may create serviceaccounts/token of it and get pods/proxy there"
        )
