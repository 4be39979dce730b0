"""A cluster that a command asks, as kubectl would reach it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
from pydantic import ValidationError

from closeknit.api.printable import printable
from closeknit.cli.given import Reach
from closeknit.cli.not_there import NotThere
from closeknit.kube.errors import ApiError, NotFound
from closeknit.kube.http import HttpApi
from closeknit.kube.login import LoginError


@asynccontextmanager
async def asking(reach: Reach, *, missing: str) -> AsyncGenerator[HttpApi, None]:
    """The way to the cluster. Raises NotThere for whatever keeps us from it or from reading what it answers; `missing`
    says what it means that something does not exist."""
    try:
        way = HttpApi.connect(user_agent="closeknit", kubeconfig=reach.kubeconfig, context=reach.context)
        async with await way as api:
            yield api
    except NotFound:
        raise NotThere(printable(missing)) from None
    except (LoginError, ApiError, OSError) as error:
        raise _not_there("cannot ask the cluster", error) from None
    except ValidationError as error:
        raise _not_there(f"a {error.title} cannot be read", error) from None
    except msgspec.DecodeError as error:
        raise _not_there("an object cannot be read", error) from None


def _not_there(what: str, error: Exception) -> NotThere:
    return NotThere(printable(f"{what}: {' '.join(str(error).split())}"))
