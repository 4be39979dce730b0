"""What happened in a life, for those who have to find out why it went wrong."""

from collections import deque
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from closeknit.api.names import GPUS_ANNOTATION
from closeknit.controller.writes.resources import PODS, RESOURCE_CLAIMS, TRAINING_JOBS
from closeknit.kube.api import JsonObject, Resource
from faults.kinds import NODES
from faults.store import Change
from lives.api_server import ApiServer, key_of

KEPT = 4000  # events; a failure shows the last of them


class Chronicle:
    """The last things that happened, each as one line, and the digest of all."""

    def __init__(self, server: ApiServer, time: Callable[[], float]) -> None:
        self._server = server
        self._time = time
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._digest = sha256()
        server.observers.append(self._see)

    def note(self, actor: str, words: str) -> None:
        """Takes down what no object shows."""
        line = f"{self._time():9.3f}  {actor:<10} {words}"
        self._lines.append(line)
        self._digest.update(line.encode())

    @property
    def digest(self) -> str:
        """Of everything: two lives of one seed have the same."""
        return self._digest.hexdigest()

    def last(self, count: int, about: str = "") -> str:
        """The last lines, of those that name something."""
        return "\n".join([line for line in self._lines if about in line][-count:])

    def _see(self, resource: Resource, change: Change) -> None:
        body = change.new if change.new is not None else change.old
        assert body is not None
        told = _FACTS.get(resource, _nothing)
        was, now = change.old and told(change.old), change.new and told(change.new)
        if change.new is None:
            words = "is gone"
        elif was is None:
            words = f"made: {now}"
        elif now != was:
            words = f"{now}"
        else:
            return
        self.note(self._server.actor, f"{body['kind']} {key_of(body)} {words}")


def _nothing(_body: JsonObject) -> str:
    return ""


def _pod(body: JsonObject) -> str:
    metadata, status = body["metadata"], body.get("status", {})
    words = [status.get("phase", ""), f"on {body['spec'].get('nodeName') or '-'}"]
    gpus = (metadata.get("annotations") or {}).get(GPUS_ANNOTATION)
    words += [f"for {gpus}"] if gpus else []
    words += ["going"] if "deletionTimestamp" in metadata else []
    words += ["gated"] if body["spec"].get("schedulingGates") else []
    words += [status["reason"]] if "reason" in status else []
    words += [
        f"{each['type']}={each['status']} ({each.get('message', '')})"
        for each in status.get("conditions", ())
        if each["type"] == "DisruptionTarget" or (each["type"] == "PodScheduled" and each["status"] != "True")
    ]
    return " ".join(words)


def _claim(body: JsonObject) -> str:
    results = body.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    going = " going" if "deletionTimestamp" in body["metadata"] else ""
    return ", ".join(f"{each['pool']}/{each['device']}" for each in results) + going


def _node(body: JsonObject) -> str:
    ready = [each["status"] for each in body["status"]["conditions"] if each["type"] == "Ready"]
    taints = [f"{each['key']}:{each['effect']}" for each in body["spec"].get("taints") or ()]
    return f"Ready={ready} cordoned={body['spec'].get('unschedulable', False)} {taints}"


def _job(body: JsonObject) -> str:
    spec, status = body["spec"], body.get("status", {})
    placed: Any = (status.get("placement") or {}).get("nodes", ())
    words = [f"gpus={spec['gpus']}", *(["suspend"] if spec.get("suspend") else [])]
    words += [f"{status.get('state', 'new')} attempt={status.get('attempt', '-')}"]
    words += [f"{node['name']}:{node['gpus']}" for node in placed]
    if pending := status.get("pending"):
        words += [f"{pending['reason']}: {pending['message'][:160]}"]
    words += [f"last={each['reason']}" for each in (status.get("attempts") or ())[-1:]]
    words += [
        f"{each['type']}={each['status']}/{each['reason']}: {each.get('message', '')[:160]}"
        for each in status.get("conditions", ())
        if each["type"] == "Running"
    ]
    return " ".join(words)


_FACTS: dict[Resource, Callable[[JsonObject], str]] = {
    PODS: _pod,
    RESOURCE_CLAIMS: _claim,
    NODES: _node,
    TRAINING_JOBS: _job,
}
