"""The Gang that launch turns into children: a booking, with the current facts of its machines."""

from dataclasses import dataclass
from operator import attrgetter

from closeknit.api.clustertopology import Fabric, SriovNetwork
from closeknit.api.names import (
    FUNCTION_PREFIX,
    GPU_DRA_DRIVER,
    GPU_RESOURCE,
    MIG_DEVICE_CLASS,
    NVLINK_DOMAIN_LEVEL,
    Role,
)
from closeknit.api.nodetopology import PortState, Transport
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import EndReason
from closeknit.api.text.nccl_version import NcclVersion
from closeknit.api.trainingjob import PodTemplate
from closeknit.cluster.booking.booking import Booking, BookingShare, gpu_digest
from closeknit.cluster.booking.gang_sidecar import may_have_sidecar, refused_since
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.network.levels import GPU_CLIQUE_LABEL, Place, nvlink_domain
from closeknit.cluster.node.cpu_share import cpu_share_milli
from closeknit.cluster.node.mig_devices import mig_resource
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.nic_exposure import NicExposure, is_claimed, networks, nic_exposure
from closeknit.cluster.objects.pod_requests import CPU
from closeknit.launch.cloud_platforms import platform
from closeknit.launch.cpus import are_open
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.network import NCCL_TRANSPORTS
from closeknit.launch.template import trainer_index
from closeknit.lifecycle.attempt.remedies import remedies
from closeknit.placement.candidates.offer import fewest_joined
from closeknit.placement.gang.interconnect import Interconnect

_REFUSED = frozenset({EndReason.UNSCHEDULABLE, EndReason.NODE_REFUSED})


@dataclass(frozen=True, slots=True)
class Lost:
    """A booked node that no longer matches the booking."""

    node: str
    message: str


def gang(
    job: TrainingJob,
    booking: Booking,
    cluster: Cluster,
    *,
    ipc_lock: bool,
    gives_cpus: bool = True,
    has_sidecar: bool = True,
) -> Gang | Lost:
    """The gang of a booking. `gives_cpus` is whether the namespace is known to admit more CPUs than its template
    requests, `has_sidecar` whether its Pods are not known to be refused for their sidecar.

    Lost where a node has gone, its GPUs may have other indexes now, or Pods no longer get its NICs: then the booking
    means nothing.
    """
    members: list[Member] = []
    joint = Interconnect.of(cluster).joint
    gives_cpus = gives_cpus and _gives_cpus(job)
    for index, share in enumerate(booking.shares):
        view = cluster.nodes.get(share.node)
        if view is None:
            return Lost(share.node, f"node {share.node} is no longer there")
        if share.server is not None:
            server = Member(share.node, share.server, role=Role.PARAMETER_SERVER, replacement=share.replacement)
            members.append(server)
            continue
        named = uuids(view, share)
        if named is None:
            return Lost(share.node, f"the GPUs of node {share.node} have changed since they were booked")
        addresses = _addresses(view, share) if is_claimed(share.rdma_resource) else ()
        functions = _functions(view, cluster.fabric)
        if share.nics and not (addresses or _is_offered(view, share, functions)):
            resource = share.rdma_resource.removeprefix(FUNCTION_PREFIX) or "an rdma/ resource"
            return Lost(share.node, f"node {share.node} no longer offers {resource} for {share.nics[0]}")
        members.append(
            Member(
                node=share.node,
                index=index,
                uuids=named,
                first_rank=share.first_rank,
                cpus=_cpus(view, share) if gives_cpus else None,
                lowest_gpu=min(share.gpus),
                binding=share.binding,
                gpu_resource=_resource(view, share),
                device_class=MIG_DEVICE_CLASS if share.mig_device else GPU_DRA_DRIVER,
                nics=share.nics,
                rdma_resource=share.rdma_resource or None,
                nic_addresses=addresses,
                transport=_transport(view, share.nics),
                usable=_usable(view),
                functions=functions,
                networks=networks(view.allocatable or {}),
                offered=view.rdma.exposure if view.rdma else None,
                platform=platform(view.labels),
                kubelet=view.kubelet,
                hides_levels=view.hides_levels,
                has_c2c=view.machine is not None and all(gpu.c2c_gb_s for gpu in view.machine.gpus),
                has_data_direct=view.machine is not None and any(nic.data_direct for nic in view.machine.nics),
                nvlink_domain=_nvlink_domain(cluster, view),
                clique_told=_clique_told(view),
                has_most_gpus=view.machine is not None and len(named) >= fewest_joined(len(view.machine.gpus), joint),
                replacement=share.replacement,
            )
        )
    return Gang(
        job=job,
        attempt=booking.attempt,
        members=tuple(members),
        fabric=cluster.fabric,
        ipc_lock=ipc_lock,
        remedies=remedies(job.status),
        imex_with=cluster.imex_with,
        sidecar_image=_sidecar_image(job, booking, cluster) if has_sidecar else "",
        nccl_version=NcclVersion.parse(job.status.environment.nccl_version) if job.status.environment else None,
        predicted_gb_s=job.status.placement.predicted_bus_bandwidth_gb_s if job.status.placement else None,
    )


def _sidecar_image(job: TrainingJob, booking: Booking, cluster: Cluster) -> str:
    """The sidecar's image where the gang restarts in place: the job asks for restarts, and all its nodes can."""
    nodes = (cluster.nodes.get(share.node) for share in booking.shares)
    may = may_have_sidecar(job.spec) and refused_since(job.status) is None
    does = may and all(view is not None and view.restarts_in_place for view in nodes)
    return cluster.sidecar_image if does else ""


def _resource(view: NodeView, share: BookingShare) -> str:
    """The resource that a Pod requests from a device plugin."""
    if share.mig_device:
        return next(mig_resource(device.profile) for device in view.mig if device.uuid == share.mig_device)
    return view.plugin.resource if view.plugin else GPU_RESOURCE


def _functions(view: NodeView, fabric: Fabric) -> tuple[SriovNetwork, ...]:
    """Networks of a node's SR-IOV functions, by resource."""
    offered = view.rdma.functions if view.rdma else ()
    found = (each for each in fabric.sriov_networks if each.resource in offered)
    return tuple(sorted(found, key=attrgetter("resource")))


def _is_offered(view: NodeView, share: BookingShare, functions: tuple[SriovNetwork, ...]) -> bool:
    """Whether a node still offers the NICs of a share."""
    if nic_exposure(share.rdma_resource) is NicExposure.SRIOV:
        return bool(functions)
    return bool((view.allocatable or {}).get(share.rdma_resource))


def _addresses(view: NodeView, share: BookingShare) -> tuple[str, ...]:
    """PCI addresses of the NICs that a share claims, each once; empty where one can no longer be claimed."""
    if view.nics is None or view.machine is None or view.nics.resource != share.rdma_resource:
        return ()
    rows = {f"{nic.name}:{nic.port}": row for row, nic in enumerate(view.machine.nics)}
    found = [view.nics.addresses.get(rows.get(name, -1)) for name in share.nics]
    return tuple(dict.fromkeys(each for each in found if each)) if all(found) else ()


def _gives_cpus(job: TrainingJob) -> bool:
    """Whether its trainers get CPUs of their own where kubelets align them with GPUs. Not once a scheduler or a kubelet
    has refused a Pod of the job: the added CPUs may have been the cause."""
    if any(attempt.reason in _REFUSED for attempt in job.status.attempts):
        return False
    return job.spec.template.once(_leaves_cpus_open)


def _leaves_cpus_open(template: PodTemplate) -> bool:
    return are_open(template.spec, trainer_index(template.spec))


def _cpus(view: NodeView, share: BookingShare) -> int | None:
    """CPUs of one node, if its kubelet gives CPUs and aligns them with a device plugin's devices. A Topology Manager
    does not see devices bound by claims, and could put the CPUs on the other side."""
    plugin = view.plugin
    promised = view.kubelet.aligns and view.kubelet.may_give_cpus
    if plugin is None or not promised or view.allocatable is None or share.mig_device:
        return None
    return cpu_share_milli(view.allocatable.get(CPU, 0), len(share.gpus), plugin.capacity)


def uuids(view: NodeView, share: BookingShare) -> tuple[str, ...] | None:
    """UUIDs of the booked indexes, or of the MIG device; None where they no longer hold. Where the NodeTopology has
    another generation they do if the same GPUs are there under them, and the NICs that go with them."""
    if share.mig_device:
        return (share.mig_device,) if any(device.uuid == share.mig_device for device in view.mig) else None
    if view.machine is None:
        return None
    by_index = {gpu.index: gpu.uuid or "" for gpu in view.machine.gpus}
    if any(index not in by_index for index in share.gpus):
        return None
    found = tuple(by_index[index] for index in share.gpus)
    if view.topology_generation == share.topology_generation:
        return found
    nics = {f"{nic.name}:{nic.port}" for nic in view.machine.nics}
    are_same = bool(share.gpu_digest) and gpu_digest(found) == share.gpu_digest and nics.issuperset(share.nics)
    return found if are_same else None


def _usable(view: NodeView) -> frozenset[Transport]:
    nics = view.machine.nics if view.machine else ()
    return frozenset(
        nic.transport for nic in nics if nic.state is PortState.ACTIVE and nic.transport in NCCL_TRANSPORTS
    )


def _transport(view: NodeView, nics: tuple[str, ...]) -> Transport | None:
    if view.machine is None:
        return None
    return next((nic.transport for nic in view.machine.nics if f"{nic.name}:{nic.port}" in nics), None)


def _clique_told(view: NodeView) -> tuple[str, str] | None:
    label, measured = view.labels.get(GPU_CLIQUE_LABEL), view.machine.nvlink_domain if view.machine else None
    return (label, measured) if label and measured and label != measured else None


def _nvlink_domain(cluster: Cluster, view: NodeView) -> str | None:
    """As NCCL asks the driver for it, whatever levels the cluster has; if unknown, the domain by which the gang was
    placed."""
    told = nvlink_domain(Place(view.labels, view.machine.nvlink_domain if view.machine else None), ())
    if told is not None or NVLINK_DOMAIN_LEVEL not in cluster.levels:
        return told
    return view.domains[cluster.levels.index(NVLINK_DOMAIN_LEVEL)]
