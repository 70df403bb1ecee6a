"""The permit of the call that is being executed, for tools that want to see it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .v1.types_pb2 import Permit

current: ContextVar[Permit | None] = ContextVar("callgate_permit", default=None)


def permit() -> Permit | None:
    """The permit under which `execute` runs here (idempotency key, attempt, lease); None outside, or failing open."""
    return current.get()
