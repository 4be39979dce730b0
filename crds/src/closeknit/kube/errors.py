# ruff: noqa: N818 -- these are the API server's own words for its refusals
"""What a call to the API server may raise.

    ApiError                    code, reason, message, causes, retry_after_s
    ├── Transient               nothing is wrong with the request: send it again later
    │   ├── Unavailable         5xx, a timeout, a lost connection; a write may or may not have happened
    │   └── TooManyRequests     429; wait for retry_after_s
    ├── Conflict                409: the object changed since it was read; read it again
    ├── AlreadyExists           409: the name is taken
    ├── NotFound                404: the object, its namespace or its kind is not there
    ├── Gone                    410: this resourceVersion or continue token is too old; list again
    ├── Invalid                 400, 422: the schema, a rule or a JSON patch `test` says no
    ├── Unauthorized            401: the token is not accepted
    ├── Forbidden               403: RBAC, an admission policy, Pod Security or a quota says no
    └── TooLarge                413, and etcd's limit of 1.5 MiB for one object, which comes as a 500: permanent

Whatever is not Transient stays so until somebody changes something. An answer of another code is a plain ApiError.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One reason of a refusal: which field, what is wrong with it."""

    reason: str
    field: str
    message: str


class ApiError(Exception):
    """The API server, or the way to it, refused a call. `str()` gives the server's own words."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        causes: tuple[StatusCause, ...] = (),
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code  # HTTP status; 0 when no answer came
        self.reason = reason  # the Status object's CamelCase word
        self.causes = causes
        self.retry_after_s = retry_after_s


class Transient(ApiError):
    """The same request may succeed later without anybody changing anything."""


class Unavailable(Transient):
    """No usable answer: 5xx, timeout or lost connection. A write may have been applied all the same."""


class TooManyRequests(Transient):
    """The API server asks to come back after `retry_after_s`."""


class Conflict(ApiError):
    """The object is no longer the one that was read."""


class AlreadyExists(ApiError):
    """An object of that name is there already."""


class NotFound(ApiError):
    """There is no such object, namespace or kind."""


class Gone(ApiError):
    """The history asked for is no longer kept."""


class Invalid(ApiError):
    """The API server does not accept the content of the request."""


class Unauthorized(ApiError):
    """The API server does not know who asks."""


class Forbidden(ApiError):
    """The caller may not do this, or admission refuses it."""


class TooLarge(ApiError):
    """The object does not fit into the API server's storage."""


_BY_CODE: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    422: Invalid,
    429: TooManyRequests,
}

# Both come as HTTP 500 and are permanent: the first above 1.5 MiB, the second above 2 MiB (seen on Kubernetes 1.36).
_TOO_LARGE = ("request is too large", "message larger than max")


class _StatusCause(msgspec.Struct):
    reason: str = ""
    field: str = ""
    message: str = ""


class _StatusDetails(msgspec.Struct):
    causes: list[_StatusCause] = []
    retryAfterSeconds: float | None = None  # noqa: N815 -- the wire's spelling


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


_decode_status = msgspec.json.Decoder(_Status).decode


def error_from_status(code: int, body: bytes, retry_after_s: float | None = None) -> ApiError:
    """The error that an answer means: `code` is the HTTP status, `body` a metav1.Status, or whatever a proxy sent.

    With code 0 the Status object's own code counts: that is how a watch reports an error inside its stream.
    """
    try:
        status = _decode_status(body)
    except (ValueError, RecursionError):
        status = _Status(message=body[:500].decode(errors="replace").strip())
    code = code or status.code
    details = status.details or _StatusDetails()
    kind = _BY_CODE.get(code, Unavailable if code >= 500 else ApiError)
    if kind is Conflict and status.reason == "AlreadyExists":
        kind = AlreadyExists
    elif code >= 500 and any(words in status.message for words in _TOO_LARGE):
        kind = TooLarge
    return kind(
        status.message or f"the API server answered {code}",
        code=code,
        reason=status.reason,
        causes=tuple(StatusCause(c.reason, c.field, c.message) for c in details.causes),
        retry_after_s=retry_after_s if retry_after_s is not None else details.retryAfterSeconds,
    )


class LoginError(Exception):
    """There is no way to the cluster; the message is one line for a person."""
