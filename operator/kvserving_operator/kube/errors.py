"""Errors of the Kubernetes API as the operator tells them apart.

`ApiError` carries what a reconcile needs to decide: the HTTP status, the API's machine-readable
reason and a message cut to a line. Everything that a later attempt may cure says `retryable`.
"""

from typing import Any

_MESSAGE_LIMIT = 400
# Server-side apply answers 500 to a field that the kind does not have; it is the sender's fault.
_UNTYPED = "failed to create typed patch object"
_RETRYABLE = frozenset({408, 429, 500, 502, 503, 504})


class RequestError(Exception):
    """A request that did not succeed."""

    retryable: bool
    """True when the same request may succeed later without anybody changing anything."""


class ApiError(RequestError):
    """The API server answered a request with an error status."""

    def __init__(
        self, *, status: int, reason: str, message: str, call: str, retry_after: float = 0.0
    ) -> None:
        self.status = status
        self.retry_after = retry_after
        self.reason = reason
        self.message = message[:_MESSAGE_LIMIT]
        self.call = call
        self.retryable = status in _RETRYABLE and not isinstance(self, InvalidError)
        super().__init__(f"{call}: {status} {reason}: {self.message}")


class NotFoundError(ApiError):
    """404: the object, its namespace or its kind does not exist."""


class ConflictError(ApiError):
    """409: a field is owned by another manager, or the object is not the one expected."""


class InvalidError(ApiError):
    """The API server refuses the object as it was sent: 422, 400, or an unknown field in apply."""


class ForbiddenError(ApiError):
    """403: RBAC, quota, admission, or a namespace that is going away."""

    @property
    def namespace_terminating(self) -> bool:
        """True when creation is refused because the namespace is being deleted."""
        return "being terminated" in self.message


class UnreachableError(RequestError):
    """No answer: connection refused, reset, or the time was over. May be retried."""

    retryable = True

    def __init__(self, *, call: str, cause: BaseException) -> None:
        self.call = call
        super().__init__(f"{call}: {type(cause).__name__}: {cause}"[:_MESSAGE_LIMIT])


class FencedError(Exception):
    """The write was not sent: leadership is no longer certain. Never retried in this process."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    422: InvalidError,
}


def from_response(
    *, status: int, body: Any, call: str, retry_after: float = 0.0, secret: bool = False
) -> ApiError:
    """The error for a response; `body` is the decoded Status object or text.

    With `secret` the server's message is dropped, because it may quote what was sent.
    """
    reason, message = "", ""
    if isinstance(body, dict):
        reason = str(body.get("reason") or "")
        message = str(body.get("message") or "")
    elif isinstance(body, str):
        message = body
    kind = InvalidError if _UNTYPED in message else _BY_STATUS.get(status, ApiError)
    if secret:
        message = "(message withheld: the request carried a Secret)"
    return kind(
        status=status,
        reason=reason or "Unknown",
        message=message,
        call=call,
        retry_after=retry_after,
    )
