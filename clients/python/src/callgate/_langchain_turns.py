"""State of LangChain's middleware around the requests to the model: run, compactions, and the end of a run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any

from langchain.agents.middleware.types import AgentState, PrivateStateAttr
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from typing_extensions import NotRequired

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .outcome import Outcome
    from .v1.types_pb2 import SessionState

log = logging.getLogger("callgate")
_SOURCE = "lc_source"
_DISABLED = "callgate_tools_disabled"
_SUMMARIZED = "summarization"
_OURS = "callgate"


class CallgateState(AgentState[Any]):
    """The middleware's part of the agent's state, which checkpoints keep.

    Attributes:
        callgate_run: Id of the user's message that the run answers. A summary may remove the message.
        callgate_first: Id of the first message, for the same reason.
        callgate_compacted: Id of the last summary that was reported to the server.
        callgate_asked: Ids of the approval requests that one interrupt had, for the model's last message.
    """

    callgate_run: NotRequired[Annotated[str, PrivateStateAttr]]
    callgate_first: NotRequired[Annotated[str, PrivateStateAttr]]
    callgate_compacted: NotRequired[Annotated[str, PrivateStateAttr]]
    callgate_asked: NotRequired[Annotated[list[str], PrivateStateAttr]]


def begin_run(messages: Sequence[BaseMessage]) -> dict[str, Any]:
    """The state's update when the agent is invoked."""
    return {"callgate_run": last_user_message(messages), "callgate_first": (messages[0].id or "") if messages else ""}


def last_user_message(messages: Sequence[BaseMessage]) -> str:
    """Id of the user's last message. Messages of middleware in the user's name do not count."""
    people = [one for one in messages if isinstance(one, HumanMessage) and not one.additional_kwargs.get(_SOURCE)]
    return (people[-1].id or "") if people else ""


def mark_disabled(message: ToolMessage, outcome: Outcome) -> ToolMessage:
    """The message, with a mark where tools are disabled."""
    if not outcome.tools_disabled:
        return message
    why = outcome.message if outcome.is_error else ""
    return message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, _DISABLED: why}})


def are_tools_disabled(messages: Sequence[BaseMessage]) -> bool:
    """True where the next request to the model has no tools."""
    return bool(_disabled(_of_run(messages)))


def end_run(messages: Sequence[BaseMessage]) -> dict[str, Any] | None:
    """The update that ends the run, where the model called tools after they were disabled; else None."""
    run = _of_run(messages)
    last = run[-1] if run else None
    found = _disabled(run)
    if not found or not isinstance(last, ToolMessage) or _DISABLED not in last.additional_kwargs:
        return None
    asked_since = [one for one in run[run.index(found[0]) :] if isinstance(one, AIMessage)]
    if not asked_since:
        return None
    why = next(
        (str(one.additional_kwargs[_DISABLED]) for one in reversed(found) if one.additional_kwargs[_DISABLED]), ""
    )
    said = AIMessage(f"The run was ended: tools are disabled. {why}".strip())
    return {"jump_to": "end", "messages": [said]}


def find_new_summary(state: Mapping[str, Any]) -> str:
    """Id of a summary of SummarizationMiddleware that was not reported yet; empty without one."""
    found = [one for one in state.get("messages") or [] if one.additional_kwargs.get(_SOURCE) == _SUMMARIZED]
    newest = (found[-1].id or "") if found else ""
    return "" if newest == state.get("callgate_compacted", "") else newest


def add_summary(state: Mapping[str, Any], summary: str, told: SessionState) -> dict[str, Any]:
    """The state's update, with the server's summary of the calls in the messages. It replaces an earlier one."""
    before = [one for one in state["messages"] if one.additional_kwargs.get(_SOURCE) == _OURS]
    new: list[BaseMessage] = [RemoveMessage(id=one.id) for one in before if one.id]
    if told.summary_for_model:
        new.append(HumanMessage(told.summary_for_model, additional_kwargs={_SOURCE: _OURS}))
    return {"callgate_compacted": summary, "messages": new}


def _of_run(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The messages after the user's last one."""
    said = last_user_message(messages)
    at = next((n for n, one in enumerate(messages) if said and one.id == said), -1)
    return list(messages[at + 1 :])


def _disabled(run: Sequence[BaseMessage]) -> list[ToolMessage]:
    return [one for one in run if isinstance(one, ToolMessage) and _DISABLED in one.additional_kwargs]
