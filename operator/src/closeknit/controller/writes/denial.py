"""The API server's No, as the lifecycle reads it."""

from closeknit.cluster.pods.symptoms import lacks_account
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
from closeknit.lifecycle.writes.results import Denial, DenialKind

_FAILURES: tuple[tuple[type[ApiError], DenialKind], ...] = (
    (TooManyRequests, DenialKind.BUSY),
    (Transient, DenialKind.LOST),
    (Conflict, DenialKind.CONFLICT),
    (AlreadyExists, DenialKind.CONFLICT),
    (Unauthorized, DenialKind.UNAUTHORIZED),
    (NotFound, DenialKind.NOT_FOUND),
    (Forbidden, DenialKind.FORBIDDEN),
    (Invalid, DenialKind.INVALID),
    (TooLarge, DenialKind.TOO_LARGE),
)


def denial(error: ApiError) -> Denial:
    """The facts of an error."""
    if isinstance(error, Forbidden) and lacks_account(error.message):
        return Denial(DenialKind.NO_ACCOUNT, error.code, error.reason, error.message, error.retry_after_s)
    failure = next((failure for kind, failure in _FAILURES if isinstance(error, kind)), DenialKind.OTHER)
    return Denial(failure, error.code, error.reason, error.message, error.retry_after_s)
