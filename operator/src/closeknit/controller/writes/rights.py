"""What the operator may do at all: the API server says (SelfSubjectAccessReview).

A refused create does not say whether RBAC or admission refused it, and nothing is read from another's words.
"""

import logging

from closeknit.kube.api import Api, Resource
from closeknit.kube.errors import ApiError

OWN_ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)

_log = logging.getLogger(__name__)


async def may(api: Api, verb: str, resource: Resource, namespace: str, name: str = "") -> bool:
    """Whether RBAC lets us do this with all of these there, or with the one of this name; True if unknown.
    Raises no ApiError."""
    attributes = {"group": resource.group, "resource": resource.plural, "namespace": namespace, "verb": verb}
    if name:
        attributes["name"] = name
    review = {
        "apiVersion": OWN_ACCESS_REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer = await api.create(OWN_ACCESS_REVIEWS, review)
    except ApiError as error:
        _log.info("own rights are not read", extra={"resource": str(resource), "error": error})
        return True
    return answer.get("status", {}).get("allowed") is not False
