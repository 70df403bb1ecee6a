"""A tool call as LangChain hands it to a middleware, and the answer as it takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.types import Command

from ._framework import names
from ._langchain_turns import last_user_message, mark_disabled
from ._usage import usage_of
from ._values import as_json
from .errors import NotStarted, ToolFailed
from .outcome import Result

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from ._call import CallOptions
    from .gate import GateOptions
    from .outcome import Outcome
    from .v1.types_pb2 import Usage

Answered = ToolMessage | Command[Any]
SessionId = str | Callable[["ToolCallRequest"], str] | None


@dataclass(frozen=True)
class Asked:
    """What the gate has to know of a call.

    Attributes:
        turn: The assistant's message, since models begin their ids anew (`call_0`): a node that is run again after an
            interrupt asks for the same call.
        is_resumed: The node runs again, after an interrupt.
        has_checkpointer: An interrupt can be answered.
        asked: Ids of the approval requests that one interrupt had, before the calls of the turn.
    """

    request: ToolCallRequest
    session_id: str
    run_id: str
    turn: str
    is_resumed: bool
    has_checkpointer: bool
    asked: Sequence[str]

    @staticmethod
    def of(request: ToolCallRequest, session_id: SessionId) -> Asked:
        """Raises ValueError where nothing says to which session the call belongs."""
        messages = _messages(request.state)
        assistants = [message for message in messages if isinstance(message, AIMessage)]
        kept: Any = request.state if isinstance(request.state, Mapping) else {}
        configurable: Mapping[str, Any] = request.runtime.config.get("configurable") or {}
        return Asked(
            request,
            session_id=_session(request, session_id, configurable, messages),
            run_id=kept.get("callgate_run") or last_user_message(messages),
            turn=(assistants[-1].id or f"turn-{len(assistants)}") if assistants else "",
            is_resumed=bool(configurable.get("__pregel_resuming")),
            has_checkpointer=configurable.get("__pregel_checkpointer") is not None,
            asked=kept.get("callgate_asked") or (),
        )

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.request.tool_call["name"]

    @property
    def args(self) -> dict[str, Any]:
        """The arguments as the model gave them."""
        return self.request.tool_call["args"]

    @property
    def call_id(self) -> str | None:
        """As the model, or LangChain for it, names the call."""
        return self.request.tool_call["id"]

    @property
    def usage(self) -> list[Usage]:
        """Usage since the model's last message with calls. Only the first call of a message has it.

        It comes from the messages, so that a repeated node has the same, also in another process. The server books it
        with the first judgement of a call.
        """
        return used(_messages(self.request.state), self.call_id)

    @property
    def call_options(self) -> CallOptions:
        """Of the call."""
        return {"call_id": self.call_id, "turn": self.turn, "usage": self.usage}

    @property
    def options(self) -> GateOptions:
        """Of its gate."""
        return {"run_id": self.run_id}

    def takes(self, argument: str) -> bool:
        """Whether the tool takes it, be it shown to models or injected."""
        if self.request.tool is None:
            return False
        schema: Any = self.request.tool.args_schema
        if isinstance(schema, dict):
            return names(schema, argument)
        # Not as a JSON Schema: what is injected may have none.
        schema = self.request.tool.get_input_schema()
        fields = getattr(schema, "model_fields", None) or getattr(schema, "__fields__", {})
        aliases = {field.alias for field in fields.values()}
        return argument in fields or argument in aliases or getattr(schema, "model_config", {}).get("extra") == "allow"

    def stopped(self, why: NotStarted, put: set[str] | None) -> BaseException:
        """What is raised for a tool that interrupts the graph itself."""
        return self.mistaken() if put else why.__cause__ or why

    def mistaken(self) -> RuntimeError:
        """For a tool and a policy that ask the same user, whose answers LangGraph tells apart by their order alone."""
        return RuntimeError(
            f"{self.tool} interrupts the graph itself, and callgate asks a person about it by an interrupt too: an "
            "answer to the one could be taken for the other. Let one of them ask, or give CallgateMiddleware "
            "interrupts=False"
        )

    def having(self, args: Mapping[str, Any]) -> ToolCallRequest:
        """The request with the arguments to execute."""
        return self.request.override(tool_call={**self.request.tool_call, "args": dict(args)})

    def answer(self, outcome: Outcome) -> Answered:
        """What the graph goes on with: the tool's own message or command, with the text that the model is to see."""
        value = outcome.value
        if isinstance(value, GraphBubbleUp):
            raise value
        if isinstance(value, ToolMessage):
            return _told(value, outcome)
        if isinstance(value, Command):
            return _with_messages(value, lambda message: _told(message, outcome))
        call = self.request.tool_call
        status = "error" if outcome.is_error else "success"
        said = ToolMessage(outcome.text, tool_call_id=call["id"] or "", name=call["name"], status=status)
        return mark_disabled(said, outcome)


def pending(messages: Sequence[BaseMessage]) -> tuple[str, list[Any]]:
    """Id of the model's last message, and its calls without a tool message."""
    at = next((n for n in range(len(messages) - 1, -1, -1) if isinstance(messages[n], AIMessage)), None)
    asking: Any = None if at is None else messages[at]
    if asking is None or not asking.id:
        return "", []
    answered = {message.tool_call_id for message in messages[at:] if isinstance(message, ToolMessage)}
    return asking.id, [call for call in asking.tool_calls if call["id"] and call["id"] not in answered]


def used(messages: Sequence[BaseMessage], call_id: str | None) -> list[Usage]:
    """Usage since the model's last message with calls. Only the first call of a message has it."""
    _, calls = pending(messages)
    # Other middleware may have answered some of them.
    if not calls or calls[0]["id"] != call_id:
        return []
    at = [n for n, message in enumerate(messages) if isinstance(message, AIMessage) and message.tool_calls]
    since = messages[at[-2] + 1 if len(at) > 1 else 0 : at[-1] + 1]
    found = [usage_of(message) for message in since if isinstance(message, AIMessage)]
    return [one for one in found if one is not None]


def result(answered: Answered) -> Result:
    """What a tool answered, as it is reported.

    Raises:
        ToolFailed: It is an error that somebody has made a message of.
    """
    found = [answered] if isinstance(answered, ToolMessage) else _messages_of(answered)
    if not found:
        return Result(answered, text="The agent's state was changed.")
    text = _text(found[0])
    if found[0].status == "error":
        raise ToolFailed(text or as_json(found[0].content), type="ToolInvocationError")
    return Result(answered, text=as_json(found[0].content) if text is None else text)


def bubbled(error: GraphBubbleUp) -> Result:
    """What LangGraph raises to lead the graph: another agent goes on, or the tool waits and is run again.

    Raises:
        NotStarted: The tool waits.
    """
    if isinstance(error, ParentCommand):
        return Result(error, text="The work was handed over to another agent.")
    raise NotStarted from error


def _messages(state: Any) -> Sequence[BaseMessage]:
    found = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
    return found or []


def _session(
    request: ToolCallRequest, given: SessionId, configurable: Mapping[str, Any], messages: Sequence[BaseMessage]
) -> str:
    if given is not None:
        return given if isinstance(given, str) else given(request)
    if thread := configurable.get("thread_id"):
        return str(thread)
    kept = request.state.get("callgate_first") if isinstance(request.state, Mapping) else ""
    if first := kept or (messages[0].id if messages else ""):
        return f"langchain-{first}"
    raise ValueError(
        "session_id: nothing says to which session this call belongs. Invoke the agent with "
        '{"configurable": {"thread_id": …}}, or give CallgateMiddleware a session_id'
    )


def _text(message: ToolMessage) -> str | None:
    """Its text; None where it has more than text, such as an image."""
    if isinstance(message.content, str):
        return message.content
    parts = [part if isinstance(part, str) else part.get("text") for part in message.content]
    only_text = all(isinstance(part, str) or part.get("type") == "text" for part in message.content)
    return "\n".join(str(part) for part in parts) if only_text else None


def _told(message: ToolMessage, outcome: Outcome) -> ToolMessage:
    message = mark_disabled(message, outcome)
    if _text(message) is not None:
        return message.model_copy(update={"content": outcome.text})
    hints = [{"type": "text", "text": hint} for hint in outcome.hints]
    return message.model_copy(update={"content": [*message.content, *hints]})


def _messages_of(command: Command[Any]) -> list[ToolMessage]:
    update = command.update
    messages = update.get("messages") if isinstance(update, Mapping) else None
    return [message for message in messages or [] if isinstance(message, ToolMessage)]


def _with_messages(command: Command[Any], told: Callable[[ToolMessage], ToolMessage]) -> Command[Any]:
    """The command with its tool's messages changed."""
    if not _messages_of(command) or not isinstance(update := command.update, Mapping):
        return command
    messages = [told(message) if isinstance(message, ToolMessage) else message for message in update["messages"]]
    return replace(command, update={**update, "messages": messages})
