"""The files that a framework's trainers find in their containers: a ConfigMap of the attempt."""

import json
from hashlib import sha256

from closeknit.launch.frameworks.contract import Contract
from closeknit.launch.gang import Gang, Manifest

FILES_VOLUME = "closeknit-files"
FILES_PATH = "/etc/closeknit"


def files(contract: Contract, gang: Gang) -> Manifest | None:
    """The ConfigMap; None where the framework has no files. Its owner is the attempt's Service, which must have a uid
    first: so it goes when that goes.

    Its name has a digest of what is in it. One that is there under this name holds the right files, though an attempt
    that is taken back begins again on other nodes under its number.
    """
    data = dict(contract.files(gang))
    if not data:
        return None
    metadata = gang.metadata(_name(gang, data), gang.labels)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": data}


def files_name(contract: Contract, gang: Gang) -> str | None:
    """Its name; None where the framework has no files."""
    data = dict(contract.files(gang))
    return _name(gang, data) if data else None


def _name(gang: Gang, data: dict[str, str]) -> str:
    content = json.dumps([gang.job.metadata.uid, data], sort_keys=True)
    return f"{gang.service}-{sha256(content.encode()).hexdigest()[:10]}"
