"""Who holds which GPU of one node: bookings, live Pods, claims and the kubelet's own word, brought together.

A GPU is in use when any of them says so. Of one Pod the kubelet's report is believed first (its devices never change
while it lives), then its annotation closeknit.dev/gpus, then the indexes of its booking, which a reboot may renumber.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from closeknit.api.names import JobKey
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.booking import Share
from closeknit.cluster.pod import Pod
from closeknit.cluster.report import AgentReport
from closeknit.machine.graph import Machine


@dataclass(frozen=True, slots=True)
class Held:
    """One booking's share of a node, with the Pod that stands for it once there is one."""

    job: JobKey
    share: Share
    pod: Pod | None


@dataclass(frozen=True, slots=True)
class Holding:
    """What of a node is held."""

    holders: Mapping[int, str]
    """NVML index -> holder, for people, ascending."""
    requested: int
    """GPUs of the device plugin that are spoken for: by bound Pods, and by bookings whose Pod is not bound yet."""
    unexplained: tuple[str, ...]
    """Bound Pods that hold GPUs which nobody can name."""
    unexplained_gpus: int
    rdma: Mapping[str, int]
    """RDMA resources spoken for by bound Pods."""
    rdma_booked: int
    """Bookings with RDMA whose Pod is not bound yet; each will ask for one."""


def holding(
    report: AgentReport, bookings: Sequence[Held], pods: Sequence[Pod], claimed: Iterable[tuple[str, str]]
) -> Holding:
    """What is held of one node with a valid machine.

    `pods` are the live ones bound to it, by key; `claimed` are (uuid, claim as namespace/name) by claim.
    """
    machine = report.machine
    assert machine is not None  # noqa: S101 - the caller's promise, for the type checker
    told = _told(report)
    holders: dict[int, str] = {}
    requested = rdma_booked = unexplained_gpus = 0
    unexplained: list[str] = []
    rdma: dict[str, int] = {}
    covered: dict[tuple[str, str], tuple[int, ...]] = {}
    for held in bookings:
        gpus = _booked_gpus(machine, held, told)
        for index in gpus:
            holders.setdefault(index, f"job {held.job}")
        pod = held.pod
        if pod is not None and pod.node == held.share.node:
            covered[pod.key] = gpus
        else:
            requested += 0 if held.share.binding is Binding.DRA else len(held.share.gpus)
            rdma_booked += held.share.rdma
    for pod in pods:
        gpus = covered.get(pod.key, ()) or _pod_gpus(machine, pod, told)
        for index in gpus:
            holders.setdefault(index, _holder(pod))
        requested += pod.gpu_count
        if pod.gpu_count > len(gpus):
            unexplained.append(f"{pod.namespace}/{pod.name}")
            unexplained_gpus += pod.gpu_count - len(gpus)
        for resource, amount in pod.requests.items():
            if resource.startswith("rdma/"):
                rdma[resource] = rdma.get(resource, 0) + amount
    for uuid, claim in claimed:
        for index in _indexes(machine, (uuid,)):
            holders.setdefault(index, f"claim {claim}")
    return Holding(
        holders=dict(sorted(holders.items())),
        requested=requested,
        unexplained=tuple(unexplained),
        unexplained_gpus=unexplained_gpus,
        rdma=rdma,
        rdma_booked=rdma_booked,
    )


def _told(report: AgentReport) -> dict[tuple[str, str], list[tuple[str | None, tuple[str, ...]]]]:
    """What the kubelet gave to the containers of each Pod, as (Pod's uid, devices)."""
    told: dict[tuple[str, str], list[tuple[str | None, tuple[str, ...]]]] = {}
    for entry in report.allocations or ():
        told.setdefault((entry.namespace, entry.pod), []).append((entry.pod_uid, entry.devices))
    return told


def _pod_gpus(
    machine: Machine, pod: Pod, told: Mapping[tuple[str, str], list[tuple[str | None, tuple[str, ...]]]]
) -> tuple[int, ...]:
    """GPUs of one Pod: the kubelet's word once it covers what the Pod asked for, else its annotation with that word."""
    devices = [
        device for uid, given in told.get(pod.key, ()) if not (uid and pod.uid and uid != pod.uid) for device in given
    ]
    given = _indexes(machine, devices)
    # The annotation is worth something only on a Pod of ours: anybody can write one.
    named = _indexes(machine, pod.gpus) if pod.job is not None else ()
    if given and len(given) >= max(pod.gpu_count, len(named)):
        return given
    return tuple(sorted({*given, *named}))


def _booked_gpus(
    machine: Machine, held: Held, told: Mapping[tuple[str, str], list[tuple[str | None, tuple[str, ...]]]]
) -> tuple[int, ...]:
    if held.pod is not None:
        gpus = _pod_gpus(machine, held.pod, told)
        if gpus:
            return gpus
    there = {gpu.index for gpu in machine.gpus}
    return tuple(sorted(index for index in held.share.gpus if index in there))


def _indexes(machine: Machine, uuids: Sequence[str]) -> tuple[int, ...]:
    """NVML indexes of the GPUs of this machine among `uuids`, ascending."""
    if not uuids:
        return ()
    wanted = set(uuids)
    return tuple(gpu.index for gpu in machine.gpus if gpu.uuid in wanted)


def _holder(pod: Pod) -> str:
    return f"job {pod.job}" if pod.job is not None else f"pod {pod.namespace}/{pod.name}"
