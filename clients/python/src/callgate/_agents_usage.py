"""State of a run of the OpenAI Agents SDK: the usage that calls have booked, and sessions with disabled tools."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._usage import usage_of

if TYPE_CHECKING:
    from agents import RunContextWrapper

    from .v1.types_pb2 import Usage

_NAME = "_callgate_booked"


@dataclass
class _RunUsage:
    """Attribute of the SDK's usage object, which all calls of a run share.

    Attributes:
        model: Name of the model; empty: unknown.
        until: Number of requests to the model that are booked.
        by: Usage by call. A call that is evaluated again has the same.
        is_new: True before the first call of the run in this process.
        disabled: Sessions with disabled tools.
    """

    model: str = ""
    until: int = 0
    by: dict[str, list[Usage]] = field(default_factory=dict)
    is_new: bool = True
    disabled: set[str] = field(default_factory=set)


def note_model(context: RunContextWrapper[Any], agent: Any) -> None:
    """Stores the name of the agent's model, before its request."""
    model = getattr(agent, "model", None)
    name = model if isinstance(model, str) else getattr(model, "model", None)
    _of(context).model = name if isinstance(name, str) else ""


def disabled(context: RunContextWrapper[Any]) -> set[str]:
    """Sessions of this run with disabled tools."""
    return _of(context).disabled


def of_call(context: RunContextWrapper[Any], call_id: str) -> list[Usage]:
    """Usage since the last call that booked any. The first call of a turn has it.

    A restored state begins with requests that earlier calls booked. An interrupted call books nothing after that: it
    booked its turn's usage before the interruption, or another call of the turn did.
    """
    booked, entries = _of(context), context.usage.request_usage_entries
    if call_id in booked.by:
        return booked.by[call_id]
    if booked.is_new and len(entries) > 1:
        booked.until = len(entries) - 1
    if booked.is_new and _was_interrupted(context, call_id):
        booked.until = len(entries)
    booked.is_new = False
    used = [usage_of(entry, booked.model) for entry in entries[booked.until :]]
    booked.until = len(entries)
    booked.by[call_id] = [one for one in used if one is not None]
    return booked.by[call_id]


def _was_interrupted(context: Any, call_id: str) -> bool:
    name = getattr(context, "tool_name", None)
    return bool(name) and context.is_tool_approved(name, call_id) is not None


def _of(context: RunContextWrapper[Any]) -> _RunUsage:
    found = getattr(context.usage, _NAME, None)
    if not isinstance(found, _RunUsage):
        found = _RunUsage()
        object.__setattr__(context.usage, _NAME, found)
    return found
