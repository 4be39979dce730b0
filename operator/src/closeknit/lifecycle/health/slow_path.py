"""Data of a running gang on a slower path than planned, by the agents' counters.

An unknown fact is no detour: an agent names sockets only where it counts every other way, too.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from closeknit.api.nodetopology_status import TrafficPath
from closeknit.api.reasons import ConditionReason, ConditionType
from closeknit.api.trainingjob import Framework, NvlinkPolicy, TrainingJobSpec
from closeknit.cluster.booking.booking import BookingShare, names
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.nic_exposure import NicExposure, nic_exposure
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.launched_gang import uuids
from closeknit.lifecycle.status.conditions import found, moment
from closeknit.lifecycle.status.degraded import Degradation
from closeknit.machine.islands import islands

# What is read, staged and compiled before the first step goes over sockets, too. Agents look once a minute.
SILENT_FOR = timedelta(minutes=10)
_SEE_LOG = "NCCL says why with NCCL_DEBUG=INFO; what the user sets of NCCL's wins over closeknit"


def may_detour(spec: TrainingJobSpec, shares: Sequence[BookingShare]) -> bool:
    """Whether a gang was placed for anything faster than sockets. Workers of parameter servers talk only to these."""
    return spec.parameter_servers is None and any(len(share.gpus) > 1 or share.nics for share in shares)


def counts_from(attempt: Attempt) -> datetime | None:
    """When a silent path counts as unused; None while the gang does not run."""
    running = found(attempt.subject.job.status.conditions, ConditionType.RUNNING)
    if running is None or running.status != "True":
        return None
    return moment(running.last_transition_time) + SILENT_FOR


def slow_path(attempt: Attempt) -> Degradation | None:
    """Traffic over sockets that should use RDMA, or NVLink; None where none is known. For a gang whose Pods all run."""
    spec, shares = attempt.subject.job.spec, attempt.booking.shares
    if not may_detour(spec, shares) or attempt.phases != {"Running"} or len(attempt.present) != len(shares):
        return None
    moved = [attempt.subject.cluster.devices.paths_of(pod) for pod in attempt.present]
    if not any(TrafficPath.SOCKET in paths for paths in moved):
        return None
    # What functions move the counters of their NIC's own ports leave out, and those of the functions are in the Pods.
    is_over_rdma = len(shares) > 1 and all(share.nics and not _has_functions(share) for share in shares)
    # All ranks speak one net: one that did speak RDMA clears them all, and an uncounted one may have.
    if is_over_rdma and all(TrafficPath.SOCKET in paths and TrafficPath.RDMA not in paths for paths in moved):
        return Degradation(ConditionReason.FELL_BACK_TO_SOCKETS, _fell_back(shares), is_mended_by_spec=True)
    silent = [
        share.node
        for share, paths in zip(shares, moved, strict=True)
        if TrafficPath.SOCKET in paths
        and TrafficPath.NVLINK not in paths
        and _is_joined(attempt.subject.cluster, spec, share)
    ]
    if not silent:
        return None
    return Degradation(ConditionReason.NVLINK_SILENT, _silent(silent), is_mended_by_spec=True)


def _has_functions(share: BookingShare) -> bool:
    return nic_exposure(share.rdma_resource) is NicExposure.SRIOV


def _is_joined(cluster: Cluster, spec: TrainingJobSpec, share: BookingShare) -> bool:
    """Whether NVLink joins the share's GPUs, and the job is known to use it: an arbitrary program may not."""
    wanted = spec.topology.nvlink
    if wanted is NvlinkPolicy.IGNORED or (spec.framework is Framework.CUSTOM and wanted is not NvlinkPolicy.REQUIRED):
        return False
    view = cluster.nodes.get(share.node)
    machine = None if view is None else view.machine
    if machine is None or view is None or uuids(view, share) is None:
        return False
    positions = [position for position, gpu in enumerate(machine.gpus) if gpu.index in share.gpus]
    return len(positions) > 1 and len(islands(machine, positions)) == 1


def _fell_back(shares: Sequence[BookingShare]) -> str:
    first = shares[0]
    return (
        f"its ranks were to talk over RDMA ({', '.join(first.nics)} of {first.node}), and on "
        f"{names([share.node for share in shares])} data moves over sockets and none over RDMA; {_SEE_LOG}"
    )


def _silent(nodes: Sequence[str]) -> str:
    return (
        f"the GPUs of {names(nodes)} were to talk over NVLink, and data moves over sockets and none over NVLink; "
        f"{_SEE_LOG}"
    )
