"""The trainer's environment: ours by the facts, and the user's own, which always wins."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from closeknit.api.names import Role
from closeknit.launch.cpus import cpus
from closeknit.launch.environment import nccl
from closeknit.launch.environment.clique_label import contradicted
from closeknit.launch.environment.hidden_topology import hidden
from closeknit.launch.environment.numa_pinning import promise, unpinned
from closeknit.launch.environment.unread_variables import unread
from closeknit.launch.environment.unseen_hangs import unseen
from closeknit.launch.environment.user_overrides import HarmfulSetting, harmful_settings
from closeknit.launch.frameworks.registry import contract
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.template import trainer
from closeknit.launch.variable import Variable


@dataclass(frozen=True, slots=True)
class Environment:
    """What closeknit sets in one trainer container."""

    variables: tuple[Variable, ...]
    """In the order of the manifest."""
    overridden: tuple[Variable, ...]
    """Ours that the user's own value keeps out, by name."""
    gang: Gang
    role: Role

    @property
    def names(self) -> frozenset[str]:
        """Names of what closeknit sets."""
        return frozenset(variable.name for variable in self.variables)

    @property
    def hazards(self) -> tuple[HarmfulSetting, ...]:
        """Harmful settings of the user's, by name; the same on every node of a gang, and looked for when asked."""
        return harmful_settings(self.gang, self.gang.users_environment(self.role))

    @property
    def warnings(self) -> tuple[HarmfulSetting, ...]:
        """These, and what else of its machines and of its template keeps the job from their full speed."""
        gang = self.gang
        return (*self.hazards, *unread(gang), *unseen(gang), *unpinned(gang), *hidden(gang), *contradicted(gang))

    @property
    def skipped(self) -> tuple[str, ...]:
        """Names of ours that the user sets himself, sorted; the same on every node of a gang."""
        return tuple(variable.name for variable in self.overridden)


def environment(gang: Gang, index: int) -> Environment:
    """What closeknit sets in one member. A name that the trainer's env has is the user's, whatever its value.

    What envFrom brings cannot be seen here; Kubernetes lets env win over it.
    """
    member = gang.members[index]
    spec = gang.template(member.role).spec
    container = trainer(spec)
    ours = (
        *_devices(member),
        *_storage(gang, member),
        *nccl.variables(gang, member),
        *_threads(spec, container, member),
        *contract(gang).variables(gang, member),
    )
    users = gang.users_environment(member.role)
    kept_out = (variable for variable in ours if variable.name in users)
    return Environment(
        variables=tuple(variable for variable in ours if variable.name not in users),
        overridden=tuple(sorted(kept_out, key=lambda variable: variable.name)),
        gang=gang,
        role=member.role,
    )


def container_environment(gang: Gang, index: int) -> dict[str, str]:
    """Every variable of one trainer container, name -> value, the user's own included, as `closeknit plan` prints it.

    A value that Kubernetes fills in later is shown by its source, for example `<secretKeyRef>`.
    """
    flat = {variable.name: variable.value for variable in environment(gang, index).variables}
    for name, entry in gang.users_environment(gang.members[index].role).items():
        flat[name] = shown(entry)
    return flat


def shown(entry: Mapping[str, Any]) -> str:
    """The value of a variable of the user's; of one that Kubernetes fills in later its source."""
    source = entry.get("valueFrom")
    if isinstance(source, dict) and source:
        return f"<{min(source)}>"
    return entry.get("value") or ""


def _devices(member: Member) -> tuple[Variable, ...]:
    """CUDA_VISIBLE_DEVICES is left alone: the runtime shows the container its GPUs only, under indexes from 0."""
    if not member.uuids:
        why = "it has no GPUs, and NVIDIA's images ask its runtime for all of the node"
        return (Variable("NVIDIA_VISIBLE_DEVICES", "void", why),)
    return (Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "local ranks count GPUs in PCI order, as placement does"),)


def _storage(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """NVIDIA's container toolkit brings nvidia-fs, udev and cufile.json into containers that have this."""
    if not (member.uuids and gang.job.spec.storage.gpu_direct):
        return ()
    return (Variable("NVIDIA_GDS", "enabled", "storage.gpuDirect is true"),)


def _threads(pod: Mapping[str, Any], container: Mapping[str, Any], member: Member) -> tuple[Variable, ...]:
    """Without it torchrun sets one thread; without a CPU request it is unknown how many are ours."""
    cores = member.cpus or cpus(pod, container)
    if cores is None or not member.rank_count:
        return ()
    threads = max(1, int(cores) // member.rank_count)
    why = "; ".join(filter(None, ["the container's CPUs divided by its ranks", promise(member, pod)]))
    return (Variable("OMP_NUM_THREADS", str(threads), why),)
