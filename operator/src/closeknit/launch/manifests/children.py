"""Everything that an attempt has beside its Pods and their claims."""

from dataclasses import dataclass

from closeknit.launch.frameworks.mounted_files import files
from closeknit.launch.frameworks.registry import contract
from closeknit.launch.frameworks.ssh import is_used, keys
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.manifests.compute_domain import compute_domain
from closeknit.launch.manifests.service import service


@dataclass(frozen=True, slots=True)
class Children:
    """What must exist for the Pods of a gang to find each other and to start."""

    service: Manifest
    """Named by the attempt and owned by the job; it is made first."""
    of_service: tuple[Manifest, ...] = ()
    """What goes with the Service, which owns it: without its owner, whose uid is not known yet."""
    of_job: tuple[Manifest, ...] = ()
    """What the job has once, for all its attempts."""


def children(gang: Gang) -> Children:
    """Those of the gang."""
    launch = contract(gang)
    config = files(launch, gang)
    domain = (compute_domain(gang),) if gang.uses_imex_channels else ()
    return Children(
        service(gang),
        (*(() if config is None else (config,)), *domain),
        (keys(gang),) if launch.uses_ssh and is_used(gang) else (),
    )
