"""`closeknit.client`: jobs from Python, for notebooks and pipelines.

Invariant: it decides nothing, and asks what the commands ask.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from closeknit.client.async_client import AsyncClient
from closeknit.client.blocking_client import Client
from closeknit.client.client_errors import ClientError, JobFailed, JobRefused, NoSuchJob, WaitTimeout
from closeknit.client.job_draft import JobDraft
from closeknit.client.job_event import JobEvent
from closeknit.client.seen_job import SeenJob

if TYPE_CHECKING:
    from closeknit.api.trainingjob import (
        Elastic,
        FabricRequest,
        GpuRequest,
        NetworkRequest,
        Parallelism,
        Restart,
        RestartRule,
        StorageRequest,
        TopologyRequest,
        Traffic,
    )
    from closeknit.cli.plan.plan_decision import Placed, PlanRefused

# What takes a third of a second to import comes once somebody names it.
_LATER = {
    **dict.fromkeys(
        (
            "Elastic", "FabricRequest", "GpuRequest", "NetworkRequest", "Parallelism", "Restart", "RestartRule",
            "StorageRequest", "TopologyRequest", "Traffic",
        ),
        "closeknit.api.trainingjob",
    ),
    **dict.fromkeys(("Placed", "PlanRefused"), "closeknit.cli.plan.plan_decision"),
}  # fmt: skip

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "Elastic",
    "FabricRequest",
    "GpuRequest",
    "JobDraft",
    "JobEvent",
    "JobFailed",
    "JobRefused",
    "NetworkRequest",
    "NoSuchJob",
    "Parallelism",
    "Placed",
    "PlanRefused",
    "Restart",
    "RestartRule",
    "SeenJob",
    "StorageRequest",
    "TopologyRequest",
    "Traffic",
    "WaitTimeout",
]


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
