"""Everything that an attempt has beside its Pods and their claims."""

from closeknit.launch.frameworks import contract
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.service import service


def children(gang: Gang) -> tuple[Manifest, ...]:
    """What must exist for the Pods of the gang to find each other and to start: its Service, and what its framework
    adds. All of it is named by the attempt and owned by the job."""
    return (service(gang), *contract(gang).children(gang))
