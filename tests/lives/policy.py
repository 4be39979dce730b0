"""An administrator's policy, which refuses some Pods of a namespace for as long as it stands."""

from dataclasses import dataclass

from closeknit.api.names import INDEX_LABEL
from closeknit.controller.writes.resources import PODS
from closeknit.kube.api import JsonObject, Resource
from closeknit.kube.errors import Forbidden


@dataclass
class Policy:
    """No Pods of this rank and above in this namespace; nothing at all where the namespace is empty."""

    namespace: str = ""
    first: int = 0

    def __call__(self, resource: Resource, body: JsonObject, is_dry_run: bool) -> None:
        """See `api_server.Admission`."""
        del is_dry_run
        metadata = body["metadata"]
        index = (metadata.get("labels") or {}).get(INDEX_LABEL)
        if resource != PODS or metadata["namespace"] != self.namespace or index is None or int(index) < self.first:
            return
        words = (
            f"pods \"{metadata['name']}\" is forbidden: ValidatingAdmissionPolicy 'no-ranks' with binding "
            f"'no-ranks' denied request: no rank {self.first} here"
        )
        raise Forbidden(words, code=403, reason="Forbidden")
