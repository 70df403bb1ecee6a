"""Bugs of tools: exceptions that are logged for developers, and whose text the model does not get."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any

from . import _values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._call import Call
    from .v1.gate_service_pb2 import RecordRequest

log = logging.getLogger("callgate")
_BUGS = (AttributeError, NameError, TypeError, ImportError, AssertionError, SyntaxError, RecursionError, SystemError)
"""Raised by Python itself for a wrong program, and by `assert`.

Not here: errors of values, which a model can change (ValueError, KeyError, IndexError, ArithmeticError), errors of the
environment (OSError and its subclasses), and errors that programs raise on purpose (RuntimeError, NotImplementedError).
"""
_OF_VALUES = (KeyError, IndexError, ArithmeticError)
"""The model gets their text. They are often bugs, so they are logged too."""


def failure(call: Call, args: Mapping[str, Any], error: BaseException) -> tuple[RecordRequest, _values.Told]:
    """The report of an exception. The message of a bug is generic.

    A bug is an exception of exactly these classes, without an explicit cause (`raise … from`) and without a status or
    code of a provider. A TypeError is none where the arguments do not fit the tool.
    """
    report, told = _values.failure(error)
    if _is_bug(error, report, call.execute, args):
        log.error("callgate: %s has a bug (call %s)", call.tool, call.call_id or "without an id", exc_info=error)
        report.error.message = f"{call.tool} failed because of a bug in the tool. Other arguments do not help"
        return report, _values.Told(report.error.message, True)
    if type(error) in _OF_VALUES or isinstance(error, ArithmeticError):
        log.warning("callgate: %s failed (call %s)", call.tool, call.call_id or "without an id", exc_info=error)
    return report, told


def _is_bug(error: BaseException, report: RecordRequest, execute: Callable[..., Any], args: Mapping[str, Any]) -> bool:
    if not isinstance(error, _BUGS) or type(error).__module__ != "builtins" or error.__cause__ is not None:
        return False
    told = report.error
    if told.HasField("http_status") or told.HasField("grpc_status") or told.provider_code or told.retry_after_header:
        return False
    return not isinstance(error, TypeError) or _fits(execute, args)


def _fits(execute: Callable[..., Any], args: Mapping[str, Any]) -> bool:
    """Whether the tool takes these arguments by their names."""
    try:
        signature = inspect.signature(execute)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(**args)
    except TypeError:
        return False
    return True
