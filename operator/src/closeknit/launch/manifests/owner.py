"""Children that another child owns: they go when it goes."""

from closeknit.launch.gang import Manifest


def owned(manifest: Manifest, owner: Manifest, uid: str) -> Manifest:
    """The child as that Pod or Service of this uid owns it."""
    metadata = manifest["metadata"]
    reference = {
        "apiVersion": "v1",
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": uid,
        "controller": True,
    }
    return {**manifest, "metadata": {**metadata, "ownerReferences": [reference]}}
