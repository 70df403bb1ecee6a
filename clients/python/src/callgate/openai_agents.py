"""OpenAI Agents SDK: an agent's function tools behind a gate, and its approvals as callgate's questions.

Needs `pip install 'callgate[openai-agents]'`.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from . import _agents_usage as _usage
from . import _values
from ._extras import missing
from ._framework import Frame, names
from ._questions import Answer
from .errors import CallgateError, ToolFailed

try:
    from agents import (
        FunctionTool,
        ModelBehaviorError,
        RunContextWrapper,
        ToolOutputFileContent,
        ToolOutputImage,
        ToolOutputText,
    )
except ModuleNotFoundError as error:
    raise missing("openai-agents", error) from error

if TYPE_CHECKING:
    from agents import AgentBase, RunState, Tool, ToolApprovalItem
    from agents.tool_context import ToolContext
    from typing_extensions import Unpack

    from ._call import Args, Call, CallOptions
    from .client import AsyncClient, Client
    from .gate import AsyncGate, GateOptions
    from .outcome import Outcome
    from .v1.types_pb2 import Usage

_SCHEMAS_S = 1.0
"""For how long the policy is taken to want the same of the tools' arguments: a turn of the SDK asks many times."""

SessionId = str | Callable[[RunContextWrapper[Any]], str]


def gated_tools(
    tools: Iterable[Tool],
    client: Client | AsyncClient | None = None,
    *,
    session_id: SessionId,
    interruptions: bool = False,
    approvals: Client | AsyncClient | None = None,
    repeat_parameter: str = "",
    **options: Unpack[GateOptions],
) -> list[Tool]:
    """The tools with every function tool behind a gate: `Agent(…, tools=gated_tools([…], session_id=…))`.

    The model is told what the plane says of a call, and what came of it; a tool that raises does not end the run, and
    its `failure_error_function` is not asked. Its guardrails hold as ever, its `timeout_seconds` for the execution
    alone. What OpenAI runs, and agents as tools, stay as they are: the tools of such an agent get gates of their own.

    A call that a person must approve waits for an answer in callgate. With `interruptions`, the run ends with it among
    `result.interruptions` instead, and goes on after `answer` (or `state.approve`, which answers callgate's question
    too when the tool is run).

    Args:
        tools: As for an `Agent`.
        client: The connection, of either kind; else that of the environment's settings.
        session_id: The session, or a function that reads it from the run's context.
        interruptions: Let runs be interrupted by questions to people.
        approvals: The connection by which the user's answers are given, with the credential of somebody who may
            approve; else the client.
        repeat_parameter: The name of a parameter that every tool's schema gets, by which the model can mean a
            repetition; empty: none.
        options: As of `Client.gate`.

    Raises:
        TypeError, ValueError: An argument or a setting makes no sense.
    """
    gates = _Gates(Frame(client, approvals, repeat_parameter, options), session_id, interrupts=interruptions)
    return [gates.wrap(tool) if isinstance(tool, FunctionTool) else tool for tool in tools]


async def answer(
    state: RunState[Any, Any],
    item: ToolApprovalItem,
    *,
    approve: bool,
    reason: str = "",
    by: str = "",
    arguments: Mapping[str, Any] | None = None,
) -> None:
    """Answers an interruption, in the run and in callgate; then `Runner.run(agent, state)` goes on.

    Args:
        state: Of `result.to_state()`.
        item: One of `result.interruptions`.
        approve: Whether the call may run.
        reason: Why; of a denial, the model is told.
        by: Who says so, where the plane knows no credentials.
        arguments: With an approval, the arguments to run instead of the model's. The text for the model has them.

    Raises:
        ValueError: A denial has arguments.
        CallgateError: Callgate's question cannot be answered; the run's is not answered either.
    """
    if arguments is not None and not approve:
        raise ValueError("arguments: a denied call has none")
    edited = "" if arguments is None else _values.arguments(arguments)
    tools = [tool for tool in item.agent.tools if isinstance(tool, FunctionTool) and tool.name == item.name]
    invokes = [tool.on_invoke_tool for tool in tools if isinstance(tool.on_invoke_tool, _Invoke)]
    told = ""
    for invoke in invokes:
        # The state has no other way to the context of its run.
        context: Any = state._context  # noqa: SLF001
        told = await invoke.answer(context, item, Answer(approve, reason, by, edited))
    if approve:
        state.approve(item)
    else:
        state.reject(
            item, rejection_message=told or f"A person has refused this call: {reason or 'no reason was given'}"
        )


class _Gates:
    def __init__(self, frame: Frame, session_id: SessionId, *, interrupts: bool) -> None:
        self.frame = frame
        self.interrupts = interrupts
        self._session_id = session_id
        self._tools: list[FunctionTool] = []
        self._asked: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[dict[str, Any]]] = WeakKeyDictionary()

    async def parameters(self, name: str) -> dict[str, Any]:
        """The schema of a tool's arguments, as the model is to see it; asked for all tools of a turn at once."""
        loop = asyncio.get_running_loop()
        asked = self._asked.get(loop)
        if asked is None:
            asked = self._asked[loop] = loop.create_task(self._describe())
            loop.call_later(_SCHEMAS_S, self._asked.pop, loop, None)
        # Whoever asks first may be cancelled, and the others not.
        parameters: dict[str, Any] = (await asyncio.shield(asked))[name]
        return parameters

    async def _describe(self) -> dict[str, Any]:
        given = [
            {
                "type": "function",
                "name": tool.name,
                "parameters": tool.params_json_schema,
                "strict": tool.strict_json_schema,
            }
            for tool in self._tools
        ]
        return {schema["name"]: schema["parameters"] for schema in await self.frame.aschemas(given)}

    def gate(self, context: RunContextWrapper[Any]) -> AsyncGate:
        """Raises TypeError where `session_id` gives none."""
        return self.frame.agate(self.session(context), {})

    def session(self, context: RunContextWrapper[Any]) -> str:
        return self._session_id if isinstance(self._session_id, str) else self._session_id(context)

    def wrap(self, tool: FunctionTool) -> FunctionTool:
        if getattr(tool, "_is_agent_tool", False):
            return tool
        inner, outer = copy.copy(tool), copy.copy(tool)
        # Else it would make a text of an exception, and nobody would know what went wrong.
        inner._failure_error_function = None  # noqa: SLF001
        inner._use_default_failure_error_function = False  # noqa: SLF001
        invoke = _Invoke(self, inner)
        self._tools.append(inner)
        outer.on_invoke_tool = invoke
        outer.timeout_seconds = None

        async def is_enabled(context: RunContextWrapper[Any], agent: AgentBase[Any]) -> bool:
            # The SDK asks this before it shows the model its tools.
            _usage.note_model(context, agent)
            if self.session(context) in _usage.disabled(context):
                return False
            outer.params_json_schema = await self.parameters(tool.name)
            return await _settled(tool.is_enabled, context, agent)

        async def needs_approval(context: RunContextWrapper[Any], args: dict[str, Any], call_id: str) -> bool:
            return await _settled(tool.needs_approval, context, args, call_id) or await invoke.asks(
                context, args, call_id
            )

        outer.is_enabled = is_enabled
        if self.interrupts:
            outer.needs_approval = needs_approval
        return outer


@dataclass(frozen=True)
class _Invoke:
    """What the SDK calls to run a tool."""

    gates: _Gates
    tool: FunctionTool

    async def __call__(self, context: ToolContext[Any], raw: str) -> Any:
        if not self.gates.frame.knows(self.tool.name):
            await self.gates.parameters(self.tool.name)

        async def execute(**args: Any) -> Any:
            try:
                return await self.tool.on_invoke_tool(context, json.dumps(args))
            except ModelBehaviorError as error:
                raise ToolFailed(str(error), type="ValidationError", http_status=422) from error

        call = self._call(self._same(raw), context.tool_call_id, execute, _usage.of_call(context, context.tool_call_id))
        if self.gates.interrupts:
            # The interruption was the wait for the approval.
            call = replace(call, approval_wait_s=0.0)
        gate = self.gates.gate(context)
        if self.gates.interrupts and context.is_tool_approved(self.tool.name, context.tool_call_id):
            # A yes for good answers no question that it was not said to.
            await self.gates.frame.aanswer(gate, call, Answer(approve=True))
        outcome = await gate.run_call(call)
        if outcome.tools_disabled:
            _usage.disabled(context).add(gate.session_id)
        return _shown(outcome)

    async def asks(self, context: RunContextWrapper[Any], args: dict[str, Any], call_id: str) -> bool:
        """Whether a person must approve. Where nobody can be asked now, the execution tells the model."""
        try:
            call = self._call(args, call_id, _unasked, _usage.of_call(context, call_id))
            verdict = await self.gates.gate(context).evaluate(call)
        except CallgateError:
            # What this raises, the SDK takes for a yes.
            return False
        return bool(verdict.approval_id)

    async def answer(self, context: RunContextWrapper[Any], item: ToolApprovalItem, said: Answer) -> str:
        """Answers callgate's question, if it is still there; what the model is told of a denial."""
        call = self._call(self._same(item.arguments or "{}"), item.call_id or "", _unasked)
        gate = self.gates.gate(context)
        await self.gates.frame.aanswer(gate, call, said)
        return "" if said.approve else (await gate.evaluate(call)).tool_result_json

    def _same(self, raw: str) -> Args:
        """The arguments as `asks` is given them: it is one call."""
        if not self.gates.interrupts:
            return raw
        try:
            read = json.loads(raw)
        except ValueError:
            return raw
        return read if isinstance(read, dict) else raw

    def _call(
        self, args: Args, call_id: str, execute: Callable[..., Any], usage: Sequence[Usage] | None = None
    ) -> Call:
        takes = partial(names, self.tool.params_json_schema)
        options: CallOptions = {"call_id": call_id, "timeout_s": self.tool.timeout_seconds, "usage": usage}
        return self.gates.frame.call(self.tool.name, args, execute, takes, **options)


def _unasked(**_: Any) -> None:
    """What a question that is only asked does not execute."""


async def _settled(setting: Any, *args: Any) -> bool:
    found = setting(*args) if callable(setting) else setting
    return bool(await found if inspect.isawaitable(found) else found)


def _shown(outcome: Outcome) -> Any:
    """The text for the model; of a value that has more than text, the value and the hints."""
    if not outcome.ran or outcome.error is not None:
        return outcome.text
    value = outcome.value if isinstance(outcome.value, list) else [outcome.value]
    if not any(isinstance(part, ToolOutputImage | ToolOutputFileContent) for part in value):
        return outcome.text
    return [*value, *(ToolOutputText(text=hint) for hint in outcome.hints)]
