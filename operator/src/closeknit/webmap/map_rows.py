"""The rows of the map, as they go over the wire: what stands at its default is left out. Times are seconds of Unix."""

import msgspec

HIDDEN = "?"
"""In place of a job that the reader may not list."""
POD, CLAIM = "Pod", "claim"
"""In place of a holder that is no TrainingJob: its name is not told."""


class WireRow(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The base of all rows."""


class MachineRow(WireRow, frozen=True, omit_defaults=True, rename="camel"):
    """One kind of machine, as many nodes share it. Lists go by position, which is the order of NVML indexes."""

    indexes: tuple[int, ...]
    """NVML index of each GPU."""
    products: tuple[str, ...] = ()
    """Its products, each once."""
    islands: tuple[tuple[int, ...], ...] = ()
    """NVML indexes that reach each other over NVLink."""
    links: tuple[tuple[int, int, int], ...] = ()
    """(position, position, NVLinks) of GPUs that are linked directly."""
    switch_links: tuple[int, ...] = ()
    """NVLinks of each GPU into switches; empty of a machine without switches."""
    nics: tuple[tuple[str, tuple[int, ...], bool], ...] = ()
    """(name, positions of the nearest GPUs, whether it is down)."""
    link_gb_s: float | None = None
    """Of one NVLink, in GB/s and direction."""


class MigRow(WireRow, frozen=True, omit_defaults=True, array_like=True):
    """One MIG device of a GPU."""

    gpu: int
    """NVML index of the GPU that it is cut from."""
    profile: str
    """1g.18gb."""
    who: str = ""
    """Its holder, as in `NodeRow.held`; empty where it has none."""
    why: str = ""
    """Why no Pod can have it."""


class NodeRow(WireRow, frozen=True, omit_defaults=True, rename="camel"):
    """One node with GPUs. GPUs go by NVML index."""

    machine: str = ""
    """Key of its kind of machine; empty where it has none that is known."""
    domains: tuple[str, ...] = ()
    """Its domain at each level outside of the node, outermost first, as far as they are known: b1, b1/r2."""
    free: tuple[int, ...] = ()
    held: dict[str, tuple[int, ...]] = {}
    """By holder: namespace/name of a job, `Pod`, `claim`, or `?`."""
    unnamed: int = 0
    """GPUs of `free` that are held, and it is not known which."""
    unusable: dict[int, str] = {}
    """Why no Pod can have the GPU."""
    mig: tuple[MigRow, ...] = ()
    """Its MIG devices, by GPU."""
    excluded: str = ""
    """Why the node gets no job, in one word; empty where it gets some."""
    message: str = ""
    """The same in words."""


class ShareRow(WireRow, frozen=True, omit_defaults=True, array_like=True):
    """A gang's share of one node."""

    node: str
    gpus: tuple[int, ...]
    first_rank: int
    state: str = ""
    """Lost, Succeeded, or whether its Pod got these GPUs (Verified, Mismatch); empty where that is not known."""


class SpanRow(WireRow, frozen=True, omit_defaults=True, array_like=True):
    """One phase of a job."""

    phase: str
    """waiting, starting, running, or after an end detect, decide, free, bind, start, firstStep."""
    since: int
    until: int | None = None
    """None: it lasts."""
    words: str = ""
    """Why a run ended, at the phase that follows."""


class RunRow(WireRow, frozen=True, omit_defaults=True, rename="camel"):
    """One end of a run."""

    attempt: int
    reason: str
    ended: int
    message: str = ""
    charged: bool = False
    in_place: bool = False
    blamed: tuple[str, ...] = ()


class AxisRow(WireRow, frozen=True, omit_defaults=True, array_like=True):
    """One axis of a job's parallelism: a rank stands at (rank // stride) % size of it."""

    name: str
    size: int
    stride: int


class JobRow(WireRow, frozen=True, omit_defaults=True, rename="camel"):
    """One TrainingJob."""

    namespace: str
    name: str
    state: str
    gpus: int = 0
    """0 where its spec cannot be read."""
    reason: str = ""
    message: str = ""
    next_step: str = ""
    nearest: tuple[str, ...] = ()
    """Changes with which it would fit now, the smallest first."""
    created: int | None = None
    waits_since: int | None = None
    estimated_start: int | None = None
    queue: str = ""
    priority_class: str = ""
    priority: int = 0
    attempt: int = 1
    restarts: int = 0
    shares: tuple[ShareRow, ...] = ()
    """Of its workers, in rank order."""
    nodes: int = 0
    """How many it has; more than `shares` where these are left out of a row that would be too large."""
    spares: tuple[str, ...] = ()
    lent: tuple[str, ...] = ()
    """Nodes on which it has spare nodes of another job."""
    levels: dict[str, int] = {}
    """How many domains of each level it spans."""
    predicted_gb_s: float | None = None
    ideal_gb_s: float | None = None
    limited_by: str = ""
    axes: tuple[AxisRow, ...] = ()
    """Those that are larger than 1."""
    spans: tuple[SpanRow, ...] = ()
    runs: tuple[RunRow, ...] = ()
    trained_s: int | None = None
    lost_gpu_s: int | None = None
    ettr: float | None = None
