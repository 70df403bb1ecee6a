"""What LangChain's middleware does around the requests to the model: the run's name, compactions, and the end."""

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
    """What the agent's state keeps for the middleware, in its checkpoints too.

    Attributes:
        callgate_run: The user's message that the run answers: a summary may take it out of the messages.
        callgate_first: The first message, for the same reason.
        callgate_compacted: The summary that callgate has heard of.
        callgate_asked: The approval requests that were put together for the model's last message.
    """

    callgate_run: NotRequired[Annotated[str, PrivateStateAttr]]
    callgate_first: NotRequired[Annotated[str, PrivateStateAttr]]
    callgate_compacted: NotRequired[Annotated[str, PrivateStateAttr]]
    callgate_asked: NotRequired[Annotated[list[str], PrivateStateAttr]]


def begun(messages: Sequence[BaseMessage]) -> dict[str, Any]:
    """The state's update when the agent is invoked."""
    return {"callgate_run": last_said(messages), "callgate_first": (messages[0].id or "") if messages else ""}


def last_said(messages: Sequence[BaseMessage]) -> str:
    """The id of the user's last message; what middleware says in the user's name is none."""
    people = [one for one in messages if isinstance(one, HumanMessage) and not one.additional_kwargs.get(_SOURCE)]
    return (people[-1].id or "") if people else ""


def marked(message: ToolMessage, outcome: Outcome) -> ToolMessage:
    """The message, which remembers that no further call is let through."""
    if not outcome.tools_disabled:
        return message
    why = outcome.message if outcome.is_error else ""
    return message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, _DISABLED: why}})


def are_tools_disabled(messages: Sequence[BaseMessage]) -> bool:
    """Whether the model is to give its last answer now."""
    return bool(_disabled(_of_run(messages)))


def ended(messages: Sequence[BaseMessage]) -> dict[str, Any] | None:
    """The update that ends the run, where the model was told so and has called tools all the same."""
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
    said = AIMessage(f"The run was ended, since no further tool call is let through. {why}".strip())
    return {"jump_to": "end", "messages": [said]}


def summary_unheard_of(state: Mapping[str, Any]) -> str:
    """The id of a summary of SummarizationMiddleware that callgate has not heard of; empty: there is none."""
    found = [one for one in state.get("messages") or [] if one.additional_kwargs.get(_SOURCE) == _SUMMARIZED]
    newest = (found[-1].id or "") if found else ""
    return "" if newest == state.get("callgate_compacted", "") else newest


def compacted(state: Mapping[str, Any], summary: str, told: SessionState) -> dict[str, Any]:
    """The state's update: what callgate knows of the calls stands in the messages, once."""
    before = [one for one in state["messages"] if one.additional_kwargs.get(_SOURCE) == _OURS]
    new: list[BaseMessage] = [RemoveMessage(id=one.id) for one in before if one.id]
    if told.summary_for_model:
        new.append(HumanMessage(told.summary_for_model, additional_kwargs={_SOURCE: _OURS}))
    return {"callgate_compacted": summary, "messages": new}


def _of_run(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """What follows the user's last message."""
    said = last_said(messages)
    at = next((n for n, one in enumerate(messages) if said and one.id == said), -1)
    return list(messages[at + 1 :])


def _disabled(run: Sequence[BaseMessage]) -> list[ToolMessage]:
    return [one for one in run if isinstance(one, ToolMessage) and _DISABLED in one.additional_kwargs]
