"""The ResourceClaim that pins one Pod's GPUs by uuid."""

from closeknit.api.names import GPU_DRA_DRIVER
from closeknit.launch.gang import Gang, Manifest

REQUEST_NAME = "gpus"


def claim(gang: Gang, index: int) -> Manifest:
    """The claim of one Pod, named like the Pod. Its owner is that Pod, which must have a uid first:
    see `closeknit.launch.owner`.

    One request with a count and the uuids: where a GPU is missing or taken it allocates nothing, while allocationMode
    All would allocate fewer. has() comes first, because a device without that attribute fails the whole Pod (both seen
    on Kubernetes 1.36). Raises ValueError where a uuid is unknown: such a GPU cannot be pinned.
    """
    member = gang.members[index]
    if not all(member.uuids):
        raise ValueError(f"a GPU of node {member.node} has no uuid, so no ResourceClaim can name it")
    name = gang.name(member)
    uuid = f"device.attributes['{GPU_DRA_DRIVER}'].uuid"
    request = {
        "name": REQUEST_NAME,
        "exactly": {
            "deviceClassName": member.device_class,
            "count": member.rank_count,
            # Python writes a list of strings as CEL does, escapes included.
            "selectors": [{"cel": {"expression": f"has({uuid}) && {uuid} in {list(member.uuids)!r}"}}],
        },
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": gang.metadata(name, gang.member_labels(member)),
        "spec": {"devices": {"requests": [request]}},
    }
