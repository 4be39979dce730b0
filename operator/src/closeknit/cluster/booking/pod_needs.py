"""What the Pods of a gang take of their nodes besides the GPUs and NICs of their booking."""

from typing import NamedTuple

from closeknit.api.trainingjob import BindingPolicy, TrainingJobSpec
from closeknit.cluster.booking.gang_sidecar import server_needs, worker_needs
from closeknit.cluster.objects.pod_requests import Needs


class PodNeeds(NamedTuple):
    """Two bookings with the same shares and these the same take the same of a cluster."""

    worker: Needs = ()
    server: Needs = ()
    """Of each parameter server."""
    mig: str = ""
    """The profile of its MIG device; empty without one, or for an unreadable job."""
    takes_any: bool = True
    """Whether it accepts any GPUs of a device plugin, or may do so, for an unreadable job."""


def pod_needs(spec: TrainingJobSpec) -> PodNeeds:
    """The needs of a readable job."""
    takes_any = spec.gpu.binding is BindingPolicy.BEST_EFFORT
    return PodNeeds(worker_needs(spec), server_needs(spec), spec.gpu.mig or "", takes_any)
