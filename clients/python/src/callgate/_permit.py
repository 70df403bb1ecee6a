"""The permit of the call that is being executed, for tools that want to see it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .v1.types_pb2 import Permit


@dataclass
class Granted:
    """A permit, and whether the execution received its idempotency key."""

    permit: Permit | None
    key_sent: bool = False


current: ContextVar[Granted | None] = ContextVar("callgate_permit", default=None)


def permit() -> Permit | None:
    """The permit under which `execute` runs here (idempotency key, attempt, lease); None outside, or failing open.

    A tool that asks for it has received the key, and is reported so: ask only where the key is sent on.
    """
    granted = current.get()
    if granted is None or granted.permit is None:
        return None
    granted.key_sent = True
    return granted.permit
