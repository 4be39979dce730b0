"""What one framework needs of a gang beyond Pods with GPUs: how its processes find each other, and what starts them."""

from collections.abc import Callable
from dataclasses import dataclass

from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.member import Member
from closeknit.launch.variable import Variable


def no_variables(_gang: Gang, _member: Member) -> tuple[Variable, ...]:
    """None."""
    return ()


def no_children(_gang: Gang) -> tuple[Manifest, ...]:
    """None."""
    return ()


def same_containers(_gang: Gang, _member: Member, spec: Manifest) -> Manifest:
    """The Pod's spec as it is."""
    return spec


@dataclass(frozen=True, slots=True)
class Contract:
    """A framework's launch contract: one of these in a file of its own, and its line in frameworks.CONTRACTS.

    Its functions are pure like all of launch. What chance decides, as a key pair for ssh, the shell brings with the
    Gang.
    """

    variables: Callable[[Gang, Member], tuple[Variable, ...]] = no_variables
    """What it sets in one member's trainer, in the order of the manifest; the user's own of the same name win."""
    children: Callable[[Gang], tuple[Manifest, ...]] = no_children
    """What it needs beside the Pods and their Service: a hostfile in a ConfigMap, keys in a Secret. Named by the
    attempt and owned by the job (Gang.metadata)."""
    containers: Callable[[Gang, Member, Manifest], Manifest] = same_containers
    """The spec of one member's Pod with what it needs in there: a launcher beside the trainer of node rank 0, an init
    container, the mounts of its children. It is given the finished spec, and changes nothing of it in place."""
