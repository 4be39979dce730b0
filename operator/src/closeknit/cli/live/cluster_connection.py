"""The way to a running cluster, as kubectl would reach it, and one line for whatever keeps us from it.

It imports none of the models that decisions need: a command that shows a few objects is to answer at once.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from closeknit.api.names import GROUP, VERSION
from closeknit.api.text.printable import printable
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.kube.api import Resource
from closeknit.kube.errors import ApiError, LoginError, NotFound
from closeknit.kube.http.http_api import HttpApi

PODS = Resource("", "v1", "pods")
TRAINING_JOBS = Resource(GROUP, VERSION, "trainingjobs")
NOT_INSTALLED = "the cluster knows no TrainingJobs: is closeknit installed there?"


@asynccontextmanager
async def reached(reach: Reach, *, missing: str) -> AsyncGenerator[HttpApi, None]:
    """The way to the cluster. Raises NotThere for whatever keeps us from it or from reading what it answers; `missing`
    says what it means that something does not exist."""
    try:
        way = await HttpApi.connect(user_agent="closeknit", kubeconfig=reach.kubeconfig, context=reach.context)
    except (LoginError, OSError) as error:
        raise not_there("cannot ask the cluster", error) from None
    try:
        async with way as api:
            yield api
    except NotFound:
        raise NotThere(printable(missing)) from None
    except (LoginError, ApiError) as error:
        raise not_there("cannot ask the cluster", error) from None
    except msgspec.DecodeError as error:
        raise not_there("an object cannot be read", error) from None


def not_there(what: str, error: Exception) -> NotThere:
    """The refusal, as one line."""
    return NotThere(printable(f"{what}: {' '.join(str(error).split())}"))


def no_planner(error: ApiError) -> NotThere:
    """What it means that somebody may not list what decisions read."""
    other = ", or give a file of its objects by --cluster"
    return _not_bound(error, "closeknit-planner", "rbac.planners", other)


def no_viewer(error: ApiError) -> NotThere:
    """What it means that somebody may not read NodeTopologies."""
    return _not_bound(error, "closeknit-topology-viewer", "rbac.topologyViewers")


def _not_bound(error: ApiError, role: str, value: str, other: str = "") -> NotThere:
    words = (
        f"cannot ask the cluster: {' '.join(str(error).split())}. Have an administrator bind you to the ClusterRole "
        f"{role} (the chart's {value}){other}"
    )
    return NotThere(printable(words))
