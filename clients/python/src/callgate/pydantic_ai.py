"""Pydantic AI: a capability that puts an agent's tool calls behind a gate.

Needs `pip install 'callgate[pydantic-ai]'`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _questions
from ._extras import missing
from ._framework import Frame, names
from ._questions import Answer
from ._usage import usage_of
from ._values import as_json, failure
from .errors import NotStarted
from .errors import ToolFailed as Failed
from .outcome import Result

try:
    from pydantic_ai import ApprovalRequired, CallDeferred, ModelRetry, ToolReturn
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import SkipModelRequest, SkipToolExecution, ToolFailed, ToolFailedError, ToolRetryError
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
        is_multi_modal_content,
    )
except ModuleNotFoundError as error:
    raise missing("pydantic-ai", error) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pydantic_ai import RunContext
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import ToolDefinition
    from typing_extensions import Unpack

    from ._call import CallOptions
    from .client import AsyncClient, Client
    from .gate import AsyncGate, GateOptions
    from .outcome import Outcome
    from .v1.types_pb2 import Usage

_DEFERRALS = (ApprovalRequired, CallDeferred)
_RETRIES = (ModelRetry, ToolRetryError)
_SAID = (*_RETRIES, ToolFailed, ToolFailedError)
_OF_VALUES = (ValueError, TypeError, LookupError)
"""What code raises that does not like the arguments."""


class CallgateCapability(AbstractCapability[Any]):
    """Puts every function tool of an agent behind a gate: `Agent(…, capabilities=[CallgateCapability()])`.

    The model is told what the plane says of a call, and what came of it; a tool that raises does not end the run. A
    session is the conversation (`conversation_id`, which message histories carry on); a run is what follows one prompt.

    A call that a person must approve waits for an answer in callgate. With `deferrals`, it is deferred instead: the run
    ends with `DeferredToolRequests` (which has to be in the agent's `output_type`), whose metadata name `approval_id`,
    `tool`, `args` and `message`. What the next run is given as `deferred_tool_results` answers callgate's question.
    """

    def __init__(
        self,
        client: Client | AsyncClient | None = None,
        *,
        session_id: str | Callable[[RunContext[Any]], str] | None = None,
        deferrals: bool = False,
        approvals: Client | AsyncClient | None = None,
        repeat_parameter: str = "",
        **options: Unpack[GateOptions],
    ) -> None:
        """Connects with the first call.

        Args:
            client: The connection, of either kind; else that of the environment's settings.
            session_id: The session, or a function that gives it; else the conversation.
            deferrals: Defer what a person must approve.
            approvals: The connection by which the user's answers are given, with the credential of somebody who may
                approve; else the client.
            repeat_parameter: The name of a parameter that every tool's schema gets, by which the model can mean a
                repetition; empty: none.
            options: As of `Client.gate`.

        Raises:
            TypeError, ValueError: An argument or a setting makes no sense.
        """
        self._frame = Frame(client, approvals, repeat_parameter, options)
        self._session_id = session_id
        self._defers = deferrals
        self._parameters: dict[str, dict[str, Any]] = {}
        self._run = _RunState()

    async def for_run(self, ctx: RunContext[Any]) -> CallgateCapability:
        """Gives each run of the agent a state of its own."""
        mine = copy.copy(self)
        mine._run = _RunState()  # noqa: SLF001
        return mine

    async def on_tool_validate_error(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, error: Any
    ) -> Any:
        """Stores that this call does not reach the gate."""
        self._run.invalid.add((_turn(ctx.messages), call.tool_call_id))
        raise error

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Shows the model the tools with what the policy wants of their arguments."""
        given = [
            {"type": "function", "name": tool.name, "parameters": tool.parameters_json_schema, "strict": tool.strict}
            for tool in tool_defs
        ]
        self._parameters |= {tool.name: tool.parameters_json_schema for tool in tool_defs}
        if self._run.disabled_by:
            return []
        shown = await self._frame.aschemas(given)
        return [
            replace(tool, parameters_json_schema=schema["parameters"])
            for tool, schema in zip(tool_defs, shown, strict=True)
        ]

    async def before_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: str | dict[str, Any]
    ) -> str | dict[str, Any]:
        """Takes out of the arguments what `prepare_tools` has added, of which the tool knows nothing."""
        return self._frame.stripped(call.tool_name, args)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any], handler: Any
    ) -> Any:
        """Asks, waits, executes by `handler` as permitted, reports, and answers with what the model is to see."""
        asked = _asked(ctx.messages, call) if self._defers else call.args_as_dict()
        proposed = self._frame.stripped(call.tool_name, call.args_as_dict())
        edited = "" if call.args_as_dict() == asked else as_json(proposed)

        async def execute(**arguments: Any) -> Any:
            return await _executed(handler(await self._to_run(ctx, call, args, proposed, arguments)))

        gate = self._gate(ctx)
        ids: CallOptions = {"call_id": call.tool_call_id, "turn": _turn(ctx.messages), "usage": self._usage(ctx, call)}
        framed = self._frame.call(call.tool_name, asked, execute, self._takes(call.tool_name), **ids)
        if self._defers and ctx.tool_call_approved:
            await self._frame.aanswer(gate, framed, Answer(approve=True, arguments=edited))
        try:
            outcome = await gate.run_call(framed)
        except NotStarted as waits:
            raise (waits.__cause__ or waits) from None
        if outcome.tools_disabled:
            self._run.disabled_by = self._run.disabled_by or _turn(ctx.messages)
            self._run.disabled_why = outcome.message if outcome.is_error else self._run.disabled_why
        if self._defers and outcome.decision == "ASK":
            raise ApprovalRequired(_questions.put(outcome, call.tool_name, asked))
        return _shown(outcome)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Answers the questions of calls that the user has denied: those run nothing, and so are seen here alone.

        Ends a run whose model calls tools that are disabled.
        """
        self._end_or_go_on(ctx)
        last = request_context.messages[-1]
        if self._defers and isinstance(last, ModelRequest):
            for part in last.parts:
                if isinstance(part, ToolReturnPart) and part.outcome == "denied":
                    await self._deny(ctx, part)
        return request_context

    def _end_or_go_on(self, ctx: RunContext[Any]) -> None:
        responses = [message for message in ctx.messages if isinstance(message, ModelResponse)]
        asking = responses[-1:] if self._run.disabled_by not in ("", _turn(responses)) else []
        if any(
            part.tool_name in self._parameters for one in asking for part in one.parts if isinstance(part, ToolCallPart)
        ):
            said = f"The run was ended: tools are disabled. {self._run.disabled_why}".strip()
            raise SkipModelRequest(ModelResponse([TextPart(said)], model_name="callgate"))

    async def _deny(self, ctx: RunContext[Any], part: ToolReturnPart) -> None:
        call = self._frame.call(part.tool_name, {}, _unrun, bool, call_id=part.tool_call_id, turn=_turn(ctx.messages))
        await self._frame.aanswer(self._gate(ctx), call, Answer(approve=False, reason=part.model_response_str()))

    @staticmethod
    async def _to_run(
        ctx: RunContext[Any],
        call: ToolCallPart,
        args: Mapping[str, Any],
        proposed: Mapping[str, Any],
        permitted: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Validated arguments for the tool: the model's, or those of the permit where they differ."""
        tools = getattr(ctx.tool_manager, "tools", None) or {}
        if proposed == permitted or (tool := tools.get(call.tool_name)) is None:
            return _validated(args, proposed, permitted)
        made: dict[str, Any] = tool.args_validator.validate_python(dict(permitted), context=ctx.validation_context)
        return made

    def _gate(self, ctx: RunContext[Any]) -> AsyncGate:
        # A history processor may remove the prompt during the run.
        self._run.run_id = self._run.run_id or _run(ctx.messages)
        options: GateOptions = {"run_id": self._run.run_id}
        if self._defers:
            options["approval_wait_s"] = 0.0
        return self._frame.agate(self._session(ctx), options)

    def _usage(self, ctx: RunContext[Any], call: ToolCallPart) -> list[Usage]:
        """Usage since the model's last response with calls. Only the first call of a response has it."""
        found: list[Usage] = []
        for number, response in enumerate(reversed([m for m in ctx.messages if isinstance(m, ModelResponse)])):
            first = next((part.tool_call_id for part in self._gated(response)), None)
            if number == 0 and first != call.tool_call_id:
                return []
            if number and first is not None:
                break
            found += [used for used in [usage_of(response)] if used is not None]
        return found

    def _gated(self, response: ModelResponse) -> list[ToolCallPart]:
        """Calls that reach a gate: not those of output tools, nor those with invalid arguments."""
        turn = _turn([response])
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        return [
            call
            for call in calls
            if call.tool_name in self._parameters and (turn, call.tool_call_id) not in self._run.invalid
        ]

    def _takes(self, tool: str) -> Callable[[str], bool]:
        return partial(names, self._parameters.get(tool, {}))

    def _session(self, ctx: RunContext[Any]) -> str:
        if self._session_id is None:
            return str(ctx.conversation_id)
        return self._session_id if isinstance(self._session_id, str) else self._session_id(ctx)


@dataclass
class _RunState:
    """State of one run of the agent.

    Attributes:
        run_id: Id of the run, from its first call on.
        invalid: Calls with invalid arguments, by turn and id.
        disabled_by: Turn in which tools were disabled; empty: they are not.
        disabled_why: Message of the refusal.
    """

    run_id: str = ""
    disabled_by: str = ""
    disabled_why: str = ""
    invalid: set[tuple[str, str]] = field(default_factory=set)


def _asked(messages: Sequence[ModelMessage], call: ToolCallPart) -> dict[str, Any]:
    """The model's arguments. An approval may have others (`ToolApproved.override_args`)."""
    responses = [message for message in messages if isinstance(message, ModelResponse)]
    parts = [part for message in responses[-1:] for part in message.parts if isinstance(part, ToolCallPart)]
    same = next((part for part in parts if part.tool_call_id == call.tool_call_id), call)
    return same.args_as_dict()


def _unrun(**_: Any) -> None:
    """What a call that is only named does not execute."""


def _run(messages: Sequence[ModelMessage]) -> str:
    """What follows one prompt: a run that goes on after a deferral is the same one.

    Not by its number: a history that is cut would count anew.
    """
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    prompts = [part.timestamp for part in parts if isinstance(part, UserPromptPart)]
    return f"prompt-{prompts[-1].isoformat()}" if prompts else "prompt"


def _turn(messages: Sequence[ModelMessage]) -> str:
    """The model's message, since some models begin their ids anew with each."""
    responses = [message.timestamp for message in messages if isinstance(message, ModelResponse)]
    return f"turn-{responses[-1].isoformat()}" if responses else "turn"


def _validated(args: Mapping[str, Any], proposed: Mapping[str, Any], permitted: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the tool takes them, with what the permit has changed in those that the model gave."""
    changed = {name: value for name, value in permitted.items() if name not in proposed or proposed[name] != value}
    return {name: args[name] for name in args if name in permitted or name not in proposed} | changed


async def _executed(running: Any) -> Any:
    try:
        value = await running
    except _DEFERRALS as error:
        raise NotStarted from error
    except SkipToolExecution as skipped:
        value = skipped.result
    except _SAID as error:
        raise _failed(error) from error
    return Result(value, text=_text(value.return_value)) if isinstance(value, ToolReturn) else value


def _failed(error: Exception) -> Failed:
    """As a tool says it; where it says so of another failure, with what that tells: the call may have taken effect."""
    cause: BaseException | None = error
    while isinstance(cause, _SAID):
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    if cause is None or isinstance(cause, _OF_VALUES):
        return Failed(str(error), type="ModelRetry" if isinstance(error, _RETRIES) else "ToolFailed")
    told = failure(cause)[0].error
    status = told.http_status if told.HasField("http_status") else None
    return Failed(f"{error}: {told.message}", type=told.type, http_status=status, provider_code=told.provider_code)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


def _shown(outcome: Outcome) -> Any:
    """What the model is to see: the text; of a value that has more than text, the value and the hints."""
    if outcome.is_error:
        kind = ModelRetry if isinstance(getattr(outcome.error, "__cause__", None), _RETRIES) else ToolFailed
        raise kind(outcome.text)
    if not outcome.ran:
        return outcome.text
    value = outcome.value
    result = value.return_value if isinstance(value, ToolReturn) else value
    parts = result if isinstance(result, list | tuple) else [result]
    told = [*parts, *outcome.hints] if any(map(is_multi_modal_content, parts)) else outcome.text
    return replace(value, return_value=told) if isinstance(value, ToolReturn) else told
