"""The API server's No, as the lifecycle reads it."""

from closeknit.cluster.symptoms import lacks_account
from closeknit.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooLarge,
    TooManyRequests,
    Transient,
    Unauthorized,
)
from closeknit.lifecycle.results import Denial, Failure

_FAILURES: tuple[tuple[type[ApiError], Failure], ...] = (
    (TooManyRequests, Failure.BUSY),
    (Transient, Failure.LOST),
    (Conflict, Failure.CONFLICT),
    (AlreadyExists, Failure.CONFLICT),
    (Unauthorized, Failure.UNAUTHORIZED),
    (NotFound, Failure.NOT_FOUND),
    (Forbidden, Failure.FORBIDDEN),
    (Invalid, Failure.INVALID),
    (TooLarge, Failure.TOO_LARGE),
)


def denial(error: ApiError) -> Denial:
    """The facts of an error."""
    if isinstance(error, Forbidden) and lacks_account(error.message):
        return Denial(Failure.NO_ACCOUNT, error.code, error.reason, error.message, error.retry_after_s)
    failure = next((failure for kind, failure in _FAILURES if isinstance(error, kind)), Failure.OTHER)
    return Denial(failure, error.code, error.reason, error.message, error.retry_after_s)
