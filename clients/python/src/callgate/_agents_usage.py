"""What is known of a run of the OpenAI Agents SDK: which call books what of its usage, and where tools are disabled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._usage import usage_of

if TYPE_CHECKING:
    from agents import RunContextWrapper

    from .v1.types_pb2 import Usage

_NAME = "_callgate_booked"


@dataclass
class _Booked:
    """Kept at the SDK's own object, which all calls of a run share, and agents as tools with it.

    Attributes:
        model: The name of the model that is asked, as far as it is known.
        until: How many requests to the model calls have booked.
        by: The calls that booked them, each with its usage: a call that is asked about before it runs says the same.
        is_new: No call of this run has been here before.
        disabled: The sessions in which no call is let through any more.
    """

    model: str = ""
    until: int = 0
    by: dict[str, list[Usage]] = field(default_factory=dict)
    is_new: bool = True
    disabled: set[str] = field(default_factory=set)


def note_model(context: RunContextWrapper[Any], agent: Any) -> None:
    """Before the model is asked: which one."""
    model = getattr(agent, "model", None)
    name = model if isinstance(model, str) else getattr(model, "model", None)
    _of(context).model = name if isinstance(name, str) else ""


def disabled(context: RunContextWrapper[Any]) -> set[str]:
    """The sessions in which no call is let through any more in this run."""
    return _of(context).disabled


def of_call(context: RunContextWrapper[Any], call_id: str) -> list[Usage]:
    """The usage since the last call that booked any: the first call of a turn has it.

    A state that was stored begins with requests that the calls before it have booked. Where the interrupted call is
    the first that is seen again, those of its turn were booked as well: by the call itself, or by another of the turn.
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


def _of(context: RunContextWrapper[Any]) -> _Booked:
    found = getattr(context.usage, _NAME, None)
    if not isinstance(found, _Booked):
        found = _Booked()
        object.__setattr__(context.usage, _NAME, found)
    return found
