"""Taints and faults that keep Pods off a node or one of its GPUs."""

from dataclasses import dataclass
from enum import StrEnum

from closeknit.api.names import GPU_MEMORY_RESOURCE


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that keeps Pods away (NoSchedule or NoExecute)."""

    key: str
    value: str
    effect: str


class FaultKind(StrEnum):
    """Why a GPU of a machine is unusable; each is a clause by itself."""

    UNHEALTHY = "unhealthy"
    MIG = "MIG"
    UNNAMED = "no ResourceSlice names it"
    INCOMPLETE_POOL = "its pool of ResourceSlices is incomplete"
    SHARED_BY_MEMORY = f"shared by memory ({GPU_MEMORY_RESOURCE})"
    NOT_OFFERED = "neither a device plugin nor a ResourceSlice offers it"
    MULTIPLE_ALLOCATIONS = "its device allows multiple allocations"
    PARTITION = "its device is a partition that consumes shared counters"
    SINGLE_STRATEGY = "offered as a whole GPU (the device plugin's MIG strategy is single; gpu.mig needs mixed)"
    AVOIDED = "avoided after not being given to this job"
    OVERSOLD = "shared by the device plugin, which offers more of them than there are"
    UNTOLD_SHARING = "offered more often than there are GPUs, and no label tells how they are shared"


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of an unusable GPU. As text: `unhealthy: XID79`, `MIG`, `its pool … is incomplete (1 of 2)`."""

    kind: FaultKind
    detail: str = ""
    """Of an unhealthy GPU the reasons given, of a pool the slices that are there, of unexplained sharing the
    counts and what to do; of other kinds empty."""

    @property
    def summary(self) -> str:
        """The text that groups faults of several GPUs: without an unhealthy GPU's reasons."""
        return str(self.kind) if self.kind is FaultKind.UNHEALTHY else str(self)

    def __str__(self) -> str:
        if not self.detail:
            return str(self.kind)
        return f"{self.kind}: {self.detail}" if self.kind is FaultKind.UNHEALTHY else f"{self.kind} ({self.detail})"
