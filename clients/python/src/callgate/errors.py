"""What goes wrong: faults of the caller and of the plane. A policy's refusal is none: it is an `Outcome`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .outcome import Outcome

_NO_TLS = "WRONG_VERSION_NUMBER"
"""OpenSSL's error for an answer in plain text."""
_AWAY = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    # A proxy, or a `close` in another thread, ended the request; who cancels hears of it otherwise.
    grpc.StatusCode.CANCELLED,
}


class CallgateError(Exception):
    """The plane refused a request as such, or gave no answer.

    Attributes:
        code: The status of gRPC.
        reason: A stable string of the contract (`CALL_ID_REUSED`); empty where the transport refused.
        message: What happened, for people.
        metadata: What the reason says more, such as the `quota` that is used up.
        field: The field of the request that is wrong; empty unless the plane named one.
        retry_after_s: How long the plane asks to wait, in seconds; None where it does not say.
    """

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        field: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        """Made by `of`; programs only read it."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.field = field
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        """What happened, with the name by which the contract explains it."""
        return f"{self.message} ({self.reason or self.code.name})"

    @staticmethod
    def of(error: grpc.RpcError) -> CallgateError:
        """The typed error for one of gRPC's, such as an iteration over a stream raises."""
        # Every error that a call raises is a grpc.Call too, which gRPC's own types leave out.
        code: grpc.StatusCode = error.code()
        message: str = error.details() or code.name
        if _NO_TLS in message:
            message = f"the server at this address has no TLS: use http:// in its address, or configure TLS ({message})"
        info, retry, field = _details(error)
        kind = _BY_REASON.get(info.reason) or (
            CallgateUnavailable if code in _AWAY else _BY_CODE.get(code, CallgateError)
        )
        return kind(message, code=code, reason=info.reason, metadata=info.metadata, field=field, retry_after_s=retry)


class CallgateUnavailable(CallgateError):
    """The plane gave no answer in time, or cannot answer now. The same request may be sent again."""


class Unauthenticated(CallgateError):
    """No credential, or one that does not hold."""


class PermissionDenied(CallgateError):
    """The credential holds, and may not do this."""


class InvalidArgument(CallgateError):
    """A field of the request is malformed; `field` names it."""


class NotFound(CallgateError):
    """What the request names is not there."""


class FailedPrecondition(CallgateError):
    """The request does not fit what is stored; `reason` says how."""


class CallIdReused(FailedPrecondition):
    """The `call_id` belongs to a call with other arguments, or to one that this process is running."""


class CallAlreadySettled(FailedPrecondition):
    """The call has another outcome already, or a newer attempt of it was permitted meanwhile."""


class ResourceExhausted(CallgateError):
    """A quota or a limit of the plane is used up; `reason` says which."""


class CallRefused(Exception):
    """The plane did not let the call run; nothing was executed. The text is what the model is told.

    Attributes:
        outcome: All that was said.
    """

    def __init__(self, outcome: Outcome) -> None:
        """Made by `Outcome.unwrap`."""
        super().__init__(outcome.message)
        self.outcome = outcome


class ToolFailed(Exception):
    """A tool may raise this to say exactly what went wrong; any other exception is read as far as it tells.

    Attributes:
        type: A type name of the provider's: `rate_limit_error`.
        http_status: 100 to 599.
        provider_code: The provider's own code: `insufficient_quota`, `40001`.
        retry_after_s: How long the provider asks to wait, in seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        type: str = "",  # noqa: A002 (as the contract calls it)
        http_status: int | str | None = None,
        provider_code: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        """The message is given to the model, in one line.

        Raises:
            TypeError, ValueError: A field makes no sense; the message names it. A status may be a text of digits.
        """
        super().__init__(message)
        if isinstance(http_status, str) and http_status.isascii() and http_status.isdigit():
            http_status = int(http_status)
        if http_status is not None and (isinstance(http_status, bool) or not isinstance(http_status, int)):
            raise TypeError(f"http_status: {http_status!r} is no status of HTTP, which is a number from 100 to 599")
        if http_status is not None and not 100 <= http_status <= 599:
            raise ValueError(f"http_status: {http_status} is not from 100 to 599")
        if retry_after_s is not None and (
            isinstance(retry_after_s, bool) or not isinstance(retry_after_s, int | float)
        ):
            raise TypeError(f"retry_after_s: {retry_after_s!r} is no number of seconds")
        self.type = type
        self.http_status = http_status
        self.provider_code = provider_code
        self.retry_after_s = retry_after_s


class NotStarted(BaseException):
    """What `execute` raises when it stops before it has done anything, and will be called again: `raise … from why`.

    The call is reported as cancelled before it began, and may be asked for again under the same `call_id`. `Gate.run`
    raises this on.
    """


_BY_REASON: dict[str, type[CallgateError]] = {
    "CALL_ID_REUSED": CallIdReused,
    "CALL_ALREADY_SETTLED": CallAlreadySettled,
    "ATTEMPT_SUPERSEDED": CallAlreadySettled,
    "OVERLOADED": CallgateUnavailable,
    # Nothing is wrong with the field: who asks did not say who they are.
    "CALLER_UNKNOWN": Unauthenticated,
}
_BY_CODE: dict[grpc.StatusCode, type[CallgateError]] = {
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
}


def _details(error: grpc.RpcError) -> tuple[error_details_pb2.ErrorInfo, float | None, str]:
    """What the status carries beside code and message; nothing where it carries nothing that can be read."""
    info = error_details_pb2.ErrorInfo()
    retry: float | None = None
    field = ""
    status = status_pb2.Status()
    try:
        trailing: Any = error.trailing_metadata() or ()
        for key, value in trailing:
            if key == "grpc-status-details-bin":
                status.ParseFromString(value)
    except DecodeError:
        return info, retry, field
    for detail in status.details:
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            wait = error_details_pb2.RetryInfo()
            detail.Unpack(wait)
            retry = wait.retry_delay.ToTimedelta().total_seconds()
        elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            wrong = error_details_pb2.BadRequest()
            detail.Unpack(wrong)
            field = ", ".join(violation.field for violation in wrong.field_violations)
    return info, retry, field
