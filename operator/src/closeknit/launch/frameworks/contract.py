"""What one framework needs of a gang beyond Pods with GPUs: how its processes find each other, and what starts them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.member import Member
from closeknit.launch.variable import Variable


def no_variables(_gang: Gang, _member: Member) -> tuple[Variable, ...]:
    """None."""
    return ()


def no_files(_gang: Gang) -> Mapping[str, str]:
    """None."""
    return {}


class SuccessOf(Enum):
    """Whose success is the job's: the others serve these, and need not end by themselves."""

    WORKERS = "all workers"
    LAUNCHER = "the Pod of node rank 0"
    CHIEF = "the first of the Pods on CPUs"


def with_workers(_spec: TrainingJobSpec) -> SuccessOf:
    """All of them."""
    return SuccessOf.WORKERS


def same_containers(_gang: Gang, _member: Member, spec: Manifest) -> Manifest:
    """The Pod's spec as it is."""
    return spec


@dataclass(frozen=True, slots=True)
class Contract:
    """A framework's launch contract: one of these in a file of its own, and its line in registry.CONTRACTS.

    Its functions are pure like all of launch. What chance decides, as a key pair for ssh, the shell puts in where it
    writes.
    """

    variables: Callable[[Gang, Member], tuple[Variable, ...]] = no_variables
    """What it sets in one member's trainer, in the order of the manifest; the user's own of the same name win."""
    files: Callable[[Gang], Mapping[str, str]] = no_files
    """What every trainer finds under mounted_files.FILES_PATH, name -> text: the same for all members."""
    containers: Callable[[Gang, Member, Manifest], Manifest] = same_containers
    """The spec of one member's Pod with what it needs in there: an init container, another command, mounts. It is given
    the finished spec, and changes nothing of it in place."""
    sizes: Mapping[str, str] = field(default_factory=dict)
    """The variables that name the size of the gang, each with the pattern of its value, `{nodes}` and `{ranks}`: where
    nothing else of a Pod names it. Empty where that is not all, so that a gang of another size needs new Pods."""
    uses_ssh: bool = False
    """Whether node rank 0 starts processes on the others over ssh, for which the job gets a key pair."""
    ends: Callable[[TrainingJobSpec], SuccessOf] = with_workers
    """With whom the job is over."""
