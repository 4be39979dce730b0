"""A gang's demands as one ordered table, the most basic first, each with its relaxation and message.

A refusal relaxes all of them and takes them back one by one; the first that cannot be met together with those before
it is the reason.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob import NvlinkPolicy, RdmaPolicy
from closeknit.placement.refusals import demand_words
from closeknit.placement.refusals.demand_words import RefusalCase
from closeknit.placement.refusals.mixed_products import mixed_products
from closeknit.placement.refusals.short_of_resources import short_of_resources
from closeknit.placement.values.request import Request


class Demand(NamedTuple):
    """One demand of a request."""

    relaxed: Callable[[Request], Request]
    """The request without it."""
    reason: PendingReason
    """The reason of its refusal."""
    words: Callable[[RefusalCase], str]
    """The message of its refusal."""
    field: str = ""
    """The job's field for it, as another demand's refusal names it."""


def _any_gpus(request: Request) -> Request:
    return request


def _any_room(request: Request) -> Request:
    return replace(request, needs=())


def _any_links(request: Request) -> Request:
    return replace(request, nvlink=NvlinkPolicy.IGNORED) if request.nvlink is NvlinkPolicy.REQUIRED else request


def _any_kinds(request: Request) -> Request:
    return replace(request, mixes_kinds=True)


def _any_domains(request: Request) -> Request:
    return replace(request, required_level=None)


def _any_transport(request: Request) -> Request:
    return request if request.rdma is RdmaPolicy.DISABLED else replace(request, rdma=RdmaPolicy.PREFERRED)


def _any_bandwidth(request: Request) -> Request:
    return replace(request, min_bus_bandwidth_gb_s=None)


def _any_patience(request: Request) -> Request:
    return replace(request, patient_level=None)


DEMANDS = (
    Demand(_any_gpus, PendingReason.INSUFFICIENT_GPUS, demand_words.insufficient),  # never relaxed
    Demand(_any_room, PendingReason.INSUFFICIENT_RESOURCES, short_of_resources),
    Demand(_any_links, PendingReason.NO_NVLINK_ISLAND, demand_words.no_island),
    Demand(_any_kinds, PendingReason.INSUFFICIENT_GPUS, mixed_products),
    Demand(_any_domains, PendingReason.NO_DOMAIN, demand_words.no_domain, "topology.fabric.required"),
    Demand(_any_transport, PendingReason.RDMA_UNAVAILABLE, demand_words.no_rdma, "network.rdma: Required"),
    Demand(
        _any_bandwidth, PendingReason.BANDWIDTH_BELOW_MINIMUM, demand_words.too_slow, "topology.minBusBandwidthGBps"
    ),
    Demand(_any_patience, PendingReason.WAITING_FOR_PREFERRED, demand_words.patient),
)
