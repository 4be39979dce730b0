"""Which Pod of the operator serves the map."""

from contextlib import suppress
from dataclasses import dataclass

import msgspec

from closeknit.api.text.printable import printable
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.live.cluster_connection import PODS
from closeknit.kube.errors import Forbidden
from closeknit.kube.http.http_api import HttpApi

# As the chart labels it, of whatever release.
LABELS = "app.kubernetes.io/name=closeknit,app.kubernetes.io/component=operator"
PORT_NAME, PORT = "http", 8080
NAMESPACE = "closeknit-system"  # where README and docs/install.md install it


@dataclass(frozen=True, slots=True)
class OperatorPod:
    """A Pod that is ready, and its port."""

    namespace: str
    path: str
    port: int


class _Port(msgspec.Struct):
    name: str = ""
    containerPort: int = PORT  # noqa: N815 - the wire's spelling


class _Container(msgspec.Struct):
    ports: list[_Port] = []
    args: list[str] = []


class _Spec(msgspec.Struct):
    containers: list[_Container] = []


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = NAMESPACE
    deletionTimestamp: str | None = None  # noqa: N815 - so


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


async def operator_pod(api: HttpApi, namespace: str | None) -> OperatorPod:
    """The first one that is ready: in this namespace; without one where it is installed by default, or else in any, as
    far as all may be listed. Raises NotThere where there is none, or none may be listed."""
    try:
        pods = await _pods(api, namespace or NAMESPACE)
    except Forbidden as error:
        raise not_allowed(namespace or NAMESPACE, error) from None
    if not pods and namespace is None:
        with suppress(Forbidden):
            pods = await _pods(api, None)
    if not pods:
        words = f"no operator runs in namespace {namespace or NAMESPACE}: name its namespace by --namespace"
        raise NotThere(printable(words))
    ready = [pod for pod in pods if _is_ready(pod)]
    if not ready:
        first = pods[0].metadata
        raise NotThere(printable(f"no Pod of the operator is ready: {first.name} in namespace {first.namespace}"))
    found = ready[0]
    containers = found.spec.containers
    if any("--no-map" in container.args for container in containers):
        raise NotThere("this operator serves no map: the chart's map.enabled leaves it out")
    ports = [port.containerPort for each in containers for port in each.ports if port.name == PORT_NAME]
    where, name = found.metadata.namespace, found.metadata.name
    return OperatorPod(where, PODS.path(where, name), ports[0] if ports else PORT)


async def _pods(api: HttpApi, namespace: str | None) -> list[_Pod]:
    page = await api.list(PODS, namespace=namespace, label_selector=LABELS)
    found = [msgspec.json.decode(item, type=_Pod) for item in page.items]
    return sorted(found, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))


def not_allowed(namespace: str, error: Forbidden) -> NotThere:
    """What it means that somebody may not forward a port."""
    said = " ".join(str(error).split())
    words = (
        f"you may not forward a port to the operator: that takes list of pods, and get and create of pods/portforward, "
        f"in namespace {namespace} ({said})"
    )
    return NotThere(printable(words))


def _is_ready(pod: _Pod) -> bool:
    conditions = pod.status.conditions
    return pod.metadata.deletionTimestamp is None and any(
        each.type == "Ready" and each.status == "True" for each in conditions
    )
