"""Settings of the user's own that make training slow, wrong or impossible: they are kept, and warned of."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from closeknit.api.names import Role
from closeknit.api.text.nccl_version import ALL, NcclRange, NcclVersion, before, since
from closeknit.api.text.opaque import short
from closeknit.launch.environment.arguments import ABOVE_GPUS, is_above_gpus, set_by_script, undoing
from closeknit.launch.environment.nccl_versions import READ_BY, read_by
from closeknit.launch.frameworks.registry import contract
from closeknit.launch.gang import Gang
from closeknit.launch.template import trainer


@dataclass(frozen=True, slots=True)
class HarmfulSetting:
    """One such setting, as text a line for people."""

    name: str
    value: str | None
    """None where Kubernetes fills it in later."""
    why: str
    """What it does, and what to do."""

    def __str__(self) -> str:
        given = "" if self.value is None else f"={short(self.value)}"
        return f"{self.name}{given}: {self.why}"


@dataclass(frozen=True, slots=True)
class _Harm:
    """What is wrong with a variable, where a value of it `is_harmful`; of an unknown value it is taken to be."""

    why: str
    is_harmful: Callable[[str, Gang], bool] = lambda _value, _gang: True
    of: NcclRange = ALL
    """Versions of NCCL that do so, of those that read the variable."""

    def words(self, name: str, value: str | None, version: NcclVersion | None) -> str | None:
        """What is told of a value, with the versions for which it holds unless all do or that of the Pods is known;
        None where NCCL of that version does no such thing."""
        reads = read_by(name, value)
        if version is None:
            of = reads if self.of is ALL else self.of
            return self.why if of is ALL else f"with {of}: {self.why}"
        return self.why if reads.has(version) and self.of.has(version) else None


def _is(*values: str) -> Callable[[str, Gang], bool]:
    return lambda value, _gang: value.strip() in values


def _crosses_sockets(value: str, gang: Gang) -> bool:
    """NCCL's maintainers advise SYS where GPUs have C2C and NCCL is older than 2.27 (NVIDIA/nccl#1579), and Azure where
    a virtual machine shows no PCIe tree (Azure/aks-rdma-infiniband#36)."""
    return value.strip() in ("SYS", "5") and not all(worker.has_c2c or worker.hides_levels for worker in gang.workers)


def _crosses_sockets_for_nothing(value: str, gang: Gang) -> bool:
    """NCCL_NET_GDR_C2C is 0 in 2.26 and 1 from 2.27 on (graph/paths.cc): SYS is no longer needed for C2C."""
    is_advised = gang.nccl_version is None or any(worker.hides_levels for worker in gang.workers)
    return value.strip() in ("SYS", "5") and not is_advised and all(worker.has_c2c for worker in gang.workers)


def _names_rails(value: str, _gang: Gang) -> bool:
    """An older NCCL reads the port of `mlx5_0::0:0` as 0, which no NIC has (misc/utils.cc: parseStringList)."""
    entries = (entry.strip().split(":") for entry in value.split(","))
    return any(len(parts) > 2 and not parts[1].strip() for parts in entries)


def _leaves_data_direct(value: str, gang: Gang) -> bool:
    return value.strip() == "0" and any(worker.has_data_direct for worker in gang.workers)


_NOT_ZERO: Callable[[str, Gang], bool] = lambda value, _gang: value.strip() not in ("", "0")  # noqa: E731
_FIXED = "it overrides a choice that NCCL makes by measurement, and an unfit one is an error; leave it out"
_BLOCKS = "NCCL chooses how many channels pay; more take multiprocessors from the model; leave it out"

_HARMS: Mapping[str, _Harm] = {
    "NCCL_ALGO": _Harm(_FIXED),
    "NCCL_PROTO": _Harm("it overrides a choice that NCCL makes by measurement, and LL128 where it is not safe corrupts "
                        "data; leave it out"),
    "NCCL_MIN_NCHANNELS": _Harm(_BLOCKS),
    "NCCL_MAX_NCHANNELS": _Harm(_BLOCKS),
    "NCCL_MIN_CTAS": _Harm(_BLOCKS),
    "NCCL_MAX_CTAS": _Harm(_BLOCKS),
    "NCCL_P2P_LEVEL": _Harm("below its default it gives up NVLink or PCIe between GPUs; leave it out"),
    "NCCL_P2P_DISABLE": _Harm("GPUs no longer reach each other over NVLink or PCIe; only for a proven fault of the "
                              "machine", _NOT_ZERO),
    "NCCL_SHM_DISABLE": _Harm("ranks of one node fall back to the network; leave it out, /dev/shm is large enough",
                              _NOT_ZERO),
    "NCCL_NET_GDR_LEVEL": _Harm("with SYS, GPUs and NICs of different sockets talk over the link between them; leave "
                                "it out", _crosses_sockets),
    "NCCL_IB_GID_INDEX": _Harm("the index differs from node to node and from Pod to Pod (error 12), and NCCL finds it "
                               "by itself; leave it out", lambda value, _gang: value.strip() != "-1", since(21)),
    "NCCL_GRAPH_FILE": _Harm("a given graph keeps NCCL from searching the GPUs that the job has; leave it out"),
    "NCCL_NVB_DISABLE": _Harm("GPUs without a direct NVLink no longer use one through a third; leave it out",
                              _NOT_ZERO),
    "NCCL_PXN_DISABLE": _Harm("GPUs no longer use each other's NICs, which rail-isolated fabrics need; leave it out",
                              _NOT_ZERO),
    "NCCL_NVLS_ENABLE": _Harm("1 skips the check whether NVSwitch multicast works; leave it out", _is("1")),
    "NCCL_COLLNET_ENABLE": _Harm("it needs a SHARP plugin, and takes trees of the fabric for every group; leave it out",
                                 _NOT_ZERO),
    "NCCL_IB_DATA_DIRECT": _Harm("0 sends what NICs carry for GPUs over the CPU, though each NIC has a function beside "
                                 "its GPU; leave it out", _leaves_data_direct),
    "NCCL_IB_TIMEOUT": _Harm("a longer one hides a dead link from the watchdog; that is the site's to say"),
    "NCCL_IB_DISABLE": _Harm("NCCL falls back to sockets without a word; set network.rdma: Disabled instead",
                             _NOT_ZERO),
    "NCCL_IB_HCA": _Harm("names are beginnings of names: mlx5_1 is mlx5_10, too; begin it with =",
                         lambda value, _gang: not value.lstrip("^").startswith("=")),
    "NCCL_SOCKET_IFNAME": _Harm("a list that only leaves out replaces NCCL's own and lets lo in again; add lo, or name "
                                "an interface by =eth0",
                                lambda value, _gang: value.startswith("^") and "lo" not in value[1:].split(",")),
    "NCCL_CROSS_NIC": _Harm("the fabric's rails are isolated, and NCCL would send across them; leave it out",
                            lambda value, gang: gang.fabric.rail_isolated and value.strip() != "0"),
    # 0 is the default of 2.18.
    "NCCL_CUMEM_ENABLE": _Harm("0 gives up NVLink between nodes and symmetric memory; leave it out", _is("0"),
                               since(19)),
    "NCCL_COMM_ID": _Harm("frameworks exchange it themselves, and two jobs with one address collide; leave it out"),
    "NCCL_HOSTID": _Harm("equal on two nodes it makes NCCL believe in NVLink that is not there; leave it out"),
    "CUDA_VISIBLE_DEVICES": _Harm("the container sees its own GPUs alone, under indexes from 0; indexes of the node "
                                  "hide them; leave it out"),
    "NVIDIA_VISIBLE_DEVICES": _Harm("what gives the container its GPUs sets it, too, and either may win; leave it out"),
    "CUDA_DEVICE_ORDER": _Harm("local ranks count GPUs in PCI order; leave it out, or set PCI_BUS_ID",
                               lambda value, _gang: value.strip() != "PCI_BUS_ID"),
    "NCCL_MULTI_RANK_GPU_ENABLE": _Harm("ranks that share a GPU hang when it has no multiprocessors left; leave it out",
                                        _NOT_ZERO),
    "NCCL_RUN_DIAGNOSTICS": _Harm("every pair of GPUs is tested whenever a group begins; set preflight instead, which "
                                  "tests once, or leave it out", _NOT_ZERO),
    "PET_NPROC_PER_NODE": _Harm(ABOVE_GPUS, is_above_gpus),
}  # fmt: skip
# A second harm of a name, which depends on the version of NCCL alone.
_HARMS_OF_VERSIONS: Mapping[str, _Harm] = {
    "NCCL_IB_HCA": _Harm("rail and plane are not read, and an empty port before them is that of no NIC; name the port, "
                         "or leave all three out", _names_rails, before(30)),
    "NCCL_NET_GDR_LEVEL": _Harm("GPUs reach NICs over their C2C link by themselves, and with SYS those of the other "
                                "socket, too; leave it out", _crosses_sockets_for_nothing, since(27)),
}  # fmt: skip


# By which ranks know who they are and where they meet: a template has one value for all of its Pods.
_RESERVED = frozenset({
    "PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT",
    "PET_RDZV_ID", "PET_LOCAL_ADDR", "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE",
    "LOCAL_WORLD_SIZE", "NODE_RANK", "SERVER_RANK", "CLOSEKNIT_WORLD_SIZE", "CLOSEKNIT_FIRST_RANK",
    "CLOSEKNIT_LOCAL_WORLD_SIZE", "TF_CONFIG", "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID",
    "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE",
})  # fmt: skip


def harmful_settings(gang: Gang, users: Mapping[str, Mapping[str, Any]]) -> tuple[HarmfulSetting, ...]:
    """What of the user's variables, name -> entry of the trainer's env, and of its command is harmful, by name. As many
    at most as the tables have lines, whatever the user sets."""
    container = trainer(gang.template(Role.WORKER).spec)
    given = {**users, **{name: {"value": value} for name, value in set_by_script(container).items()}}
    found = [*_of_variables(gang, given), *_of_ranks(gang, given), *_of_command(gang, container)]
    return tuple(sorted(found, key=lambda hazard: hazard.name))


def _of_variables(gang: Gang, users: Mapping[str, Mapping[str, Any]]) -> Iterator[HarmfulSetting]:
    for name, harm in (*_HARMS.items(), *_HARMS_OF_VERSIONS.items()):
        if (entry := users.get(name)) is None:
            continue
        value = None if entry.get("valueFrom") else entry.get("value") or ""
        is_harmful = harm is _HARMS.get(name) if value is None else harm.is_harmful(value, gang)
        if is_harmful and (words := harm.words(name, value, gang.nccl_version)) is not None:
            yield HarmfulSetting(name, value, words)


def depends_on_nccl(users: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether what is told of these variables of the user's depends on the version of NCCL: one is not read by all, or
    does not harm in all."""
    names = {*READ_BY, *_HARMS_OF_VERSIONS, *(name for name, harm in _HARMS.items() if harm.of is not ALL)}
    return not names.isdisjoint(users)


def _of_ranks(gang: Gang, users: Mapping[str, Mapping[str, Any]]) -> Iterator[HarmfulSetting]:
    """Harmful values of names by which ranks find each other. Values that Kubernetes fills in later, as by $(NAME), may
    be right and are not judged."""
    own = {
        name: users[name].get("value") or "" for name in _RESERVED & users.keys() if not users[name].get("valueFrom")
    }
    taken = {name: value for name, value in own.items() if "$(" not in value}
    if not taken:
        return
    planned: dict[str, set[str]] = {}
    for member in (gang.workers[0], gang.workers[-1]):  # those that differ at all differ between these
        for variable in contract(gang).variables(gang, member):
            planned.setdefault(variable.name, set()).add(variable.value)
    for name, value in taken.items():
        if planned.get(name, {value}) != {value}:
            why = f"ranks find each other by it, and closeknit would set {_all(planned[name])}; leave it out"
            yield HarmfulSetting(name, value, why)


def _all(values: set[str]) -> str:
    return short(min(values)) if len(values) == 1 else "another on each node"


def _of_command(gang: Gang, container: Mapping[str, Any]) -> Iterator[HarmfulSetting]:
    """An argument wins over the variable, which is right."""
    first = contract(gang).variables(gang, gang.members[0])
    planned = {variable.name: variable.value for variable in first}
    for name, value, why in undoing(gang, container, planned):
        yield HarmfulSetting(name, value, why)
