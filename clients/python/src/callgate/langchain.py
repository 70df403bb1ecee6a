"""LangChain and LangGraph: a middleware that puts an agent's tool calls behind a gate.

Needs `pip install 'callgate[langchain]'`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _questions
from ._call import Call
from ._extras import missing
from ._framework import Frame
from ._questions import Answer
from .errors import CallgateUnavailable, NotStarted, PermissionDenied
from .v1.approval_service_pb2 import APPROVAL_STATE_PENDING

try:
    from langchain.agents.middleware import AgentMiddleware, hook_config
    from langchain_core.tools import BaseTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config
    from langgraph.errors import GraphBubbleUp, GraphInterrupt
    from langgraph.types import interrupt

    from . import _langchain_calls as _calls
    from . import _langchain_turns as _turns
    from ._langchain_calls import Answered, Asked
except ModuleNotFoundError as error:
    raise missing("langchain", error) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator

    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from typing_extensions import Unpack

    from .client import AsyncClient, Client
    from .gate import GateOptions
    from .outcome import Outcome
    from .v1.approval_service_pb2 import Approval

    Step = Callable[[], Any] | Call
    """Something to do that blocks, or a call to run."""
    _Middleware = AgentMiddleware[Any, Any, Any]
else:
    # It has gained parameters with time.
    _Middleware = AgentMiddleware

log = logging.getLogger("callgate")
_NEEDS_TOOLS = ("anthropic", "amazon_bedrock")
"""Models whose provider rejects a history of tool calls in a request without tools; Bedrock cannot choose none."""

_HAS_ASYNC_INTERRUPTS = sys.version_info >= (3, 11)
"""In coroutines, LangGraph's `interrupt` knows its graph from Python 3.11 on."""


class CallgateMiddleware(_Middleware):
    """Puts every tool call of an agent behind a gate: `create_agent(…, middleware=[CallgateMiddleware()])`.

    The model is told what the plane says of a call, and what came of it; a tool that raises does not end the run.
    Waits and advised retries are seen to here. A session is a thread (`thread_id`), or without one the conversation
    that began with the same message; a run is what follows one message of the user.

    A call that a person must approve becomes an `interrupt` where the agent has a checkpointer. Its value names
    `approval_id`, `tool`, `args` and `message`, and has what LangChain's HumanInTheLoopMiddleware puts there. The graph
    goes on with `Command(resume=True)`, `Command(resume={"approve": False, "reason": "…", "by": "ada"})`, or
    `{"decisions": […]}` as HumanInTheLoopMiddleware takes it, an `edit` of the arguments among them: those are run, and
    the model is told. Any other value raises a ValueError that names these shapes, and the graph can be resumed again.
    After one yes where two people must give it, the model is told that the call waits. Without a checkpointer, and in
    coroutines before Python 3.11, the call waits for an answer in callgate. A tool that interrupts as well cannot be
    asked about so: an answer could be taken for the other.
    """

    state_schema = _turns.CallgateState

    def __init__(
        self,
        client: Client | AsyncClient | None = None,
        *,
        session_id: str | Callable[[ToolCallRequest], str] | None = None,
        approvals: Client | AsyncClient | None = None,
        interrupts: bool = True,
        repeat_parameter: str = "",
        **options: Unpack[GateOptions],
    ) -> None:
        """Connects with the first call.

        Args:
            client: The connection, of either kind; else that of the environment's settings.
            session_id: The session, or a function that gives it; else the thread.
            approvals: The connection by which the user's answers to interrupts are given, with the credential of
                somebody who may approve; else the client. Where neither may, a call that goes on after an interrupt
                waits for an answer in callgate.
            interrupts: False: wait for an answer in callgate instead.
            repeat_parameter: The name of a parameter that every tool's schema gets, by which the model can mean a
                repetition; empty: none.
            options: As of `Client.gate`.

        Raises:
            TypeError, ValueError: An argument or a setting makes no sense.
        """
        super().__init__()
        self._frame = Frame(client, approvals, repeat_parameter, options)
        self._session_id = session_id
        self._interrupts = interrupts

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002
        """Stores the run and the first message in the state."""
        return _turns.begin_run(state["messages"])

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002
        """Ends a run whose model calls disabled tools, and reports a new summary as a compaction."""
        if (end := _turns.end_run(state["messages"])) is not None:
            return end
        if not (summary := _turns.find_new_summary(state)) or (session := self._session(state)) is None:
            return None
        try:
            return _turns.add_summary(state, summary, self._frame.gate(session, {}).compacted())
        except CallgateUnavailable as error:
            log.warning(
                "callgate: a compaction of %s is not reported yet; the next turn reports it: %s", session, error
            )
            return None

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """The same for event loops."""
        return await asyncio.to_thread(copy_context().run, self.before_model, state, runtime)

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002
        """Raises one interrupt for the approval requests of several calls of one message."""
        turn, calls = _calls.pending(state["messages"])
        configurable = _configurable()
        if len(calls) < 2 or not self._interrupts or configurable.get("__pregel_checkpointer") is None:
            return None
        if (session := self._session(state)) is None:
            return None
        run_id = state.get("callgate_run") or _turns.last_user_message(state["messages"])
        gate = self._frame.gate(session, {"run_id": run_id})
        made = [
            self._frame.call(
                one["name"],
                one["args"],
                _unrun,
                bool,
                call_id=one["id"],
                turn=turn,
                usage=_calls.used(state["messages"], one["id"]),
            )
            for one in calls
        ]
        ids = {call.proposed().call_id: (call, one) for call, one in zip(made, calls, strict=True)}
        try:
            asked = self._frame.person.of_calls(session, list(ids))
            # The parameters that were added to the schema of another tool are unknown here.
            if not asked and all(self._frame.knows(call.tool) for call in made):
                # A dry run: a permit's lease would expire during the interrupt.
                held = [call for call in made if gate.would_ask(call)]
                if len(held) > 1 and _each(gate.evaluate(call).approval_id for call in held):
                    asked = self._frame.person.of_calls(session, [call.proposed().call_id for call in held])
        except (CallgateUnavailable, PermissionDenied):
            # Each call has its own interrupt then.
            return None
        if len(asked) < 2:
            return None
        named = [ids[one.call_id][1] for one in asked]
        shown = [_questions.put_before(one, call["name"], call["args"]) for one, call in zip(asked, named, strict=True)]
        answers = _put(_questions.together(shown), [call["name"] for call in named])
        for one, answer in zip(asked, answers, strict=True):
            if one.state == APPROVAL_STATE_PENDING:
                self._frame.person.answer(one.approval_id, answer)
        return {"callgate_asked": [one.approval_id for one in asked]}

    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """The same for event loops."""
        if not _HAS_ASYNC_INTERRUPTS:
            return None
        return await asyncio.to_thread(copy_context().run, self.after_model, state, runtime)

    def _session(self, state: Any) -> str | None:
        """The session; None where `session_id` is a function of a tool call."""
        if callable(self._session_id):
            return None
        thread = _configurable().get("thread_id")
        first = state.get("callgate_first") or ""
        return self._session_id or (str(thread) if thread else f"langchain-{first}")

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Shows the model the tools with what the policy wants of their arguments."""
        return handler(_shown(request, self._frame.schemas(_schemas(request.tools))))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """The same for event loops."""
        return await handler(_shown(request, await self._frame.aschemas(_schemas(request.tools))))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Answered]) -> Answered:
        """Asks, waits, executes by `handler` as permitted, reports, and answers with what the model is to see."""
        asked = Asked.of(request, self._session_id)

        def execute(**args: Any) -> Any:
            try:
                return _calls.result(handler(asked.having(args)))
            except GraphBubbleUp as error:
                return _calls.bubbled(error)

        if not self._frame.knows(asked.tool):
            self._frame.schemas(_schemas([request.tool]))
        put: set[str] | None = set() if self._puts(asked) else None
        gate = self._frame.gate(asked.session_id, asked.options)
        call = self._frame.call(asked.tool, asked.args, execute, asked.takes, **asked.call_options)
        steps = self._steps(asked, call, put)
        try:
            step = next(steps)
            while True:
                step = steps.send(gate.run_call(step) if isinstance(step, Call) else step())
        except StopIteration as end:
            return asked.answer(end.value)
        except NotStarted as stopped:
            raise asked.stopped(stopped, put) from None

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answered]]
    ) -> Answered:
        """The same for event loops."""
        asked = Asked.of(request, self._session_id)

        async def execute(**args: Any) -> Any:
            try:
                return _calls.result(await handler(asked.having(args)))
            except GraphBubbleUp as error:
                return _calls.bubbled(error)

        if not self._frame.knows(asked.tool):
            await self._frame.aschemas(_schemas([request.tool]))
        put: set[str] | None = set() if self._puts(asked) and _HAS_ASYNC_INTERRUPTS else None
        gate = self._frame.agate(asked.session_id, asked.options)
        call = self._frame.call(asked.tool, asked.args, execute, asked.takes, **asked.call_options)
        steps = self._steps(asked, call, put)
        try:
            step = next(steps)
            while True:
                step = steps.send(await (gate.run_call(step) if isinstance(step, Call) else asyncio.to_thread(step)))
        except StopIteration as end:
            return asked.answer(end.value)
        except NotStarted as stopped:
            raise asked.stopped(stopped, put) from None

    def _puts(self, asked: Asked) -> bool:
        """Whether questions become interrupts, which somebody has to be able to answer."""
        return self._interrupts and asked.has_checkpointer

    def _steps(self, asked: Asked, call: Call, put: set[str] | None) -> Generator[Step, Any, Outcome]:
        """What is to be done, for threads and event loops alike; it is sent what came of it.

        LangGraph gives the user's answers to the interrupts of a node by their order alone, and runs the node again
        from its beginning. So that no answer is taken for another, each question is put once; when the node runs again,
        those that were put before take their answers first, in their order and whatever has become of them meanwhile;
        and a question that is new must stop the graph.

        Args:
            asked: The call.
            call: The same, as the gate takes it.
            put: Gets the questions that were put as interrupts; None: the call waits for answers in callgate.
        """
        outcome: Outcome
        if put is None:
            outcome = yield call
            return outcome
        may_look = True
        put.update(asked.asked)
        if asked.is_resumed:
            found: list[Approval] | None = yield partial(self._before, asked.session_id, call.proposed().call_id)
            may_look = found is not None
            for before in found or []:
                if before.approval_id in asked.asked:
                    continue
                put.add(before.approval_id)
                (answer,) = _put(_questions.put_before(before, asked.tool, asked.args), [asked.tool])
                if before.state == APPROVAL_STATE_PENDING:
                    yield partial(self._frame.person.answer, before.approval_id, answer)
        outcome = yield replace(call, approval_wait_s=0.0)
        if outcome.decision != "ASK":
            return outcome
        if outcome.approval_id not in put:
            put.add(outcome.approval_id)
            interrupt(_questions.put(outcome, asked.tool, asked.args))
            if may_look:
                raise asked.mistaken()
            # Nobody may answer here: an approver may have answered in callgate meanwhile.
            outcome = yield replace(call, approval_wait_s=0.0)
        return outcome

    def _before(self, session_id: str, call_id: str) -> list[Approval] | None:
        """The questions that were put before; None where the credential may not look at them, nor answer."""
        try:
            return self._frame.person.questions(session_id, call_id)
        except PermissionDenied:
            return None


def _each(found: Iterator[str]) -> bool:
    """True where none is empty. All are evaluated."""
    return all(list(found))


def _unrun(**_: Any) -> None:
    """Placeholder of a call that is evaluated and not executed."""


def _configurable() -> dict[str, Any]:
    """Configuration of the running graph; empty in coroutines before Python 3.11."""
    try:
        return get_config().get("configurable", {})
    except RuntimeError:
        return {}


def _put(question: dict[str, Any], tools: list[str]) -> list[Answer]:
    """Interrupts the graph with the approval requests, and returns the decisions of its resumption.

    LangGraph keeps each value of `resume`, also a wrong one. Another interrupt takes the next value, so that the graph
    can be resumed again after the error.

    Raises:
        ValueError: The last value of `resume` has another shape.
    """
    said = interrupt(question)
    while True:
        try:
            return Answer.read(said, tools)
        except ValueError as wrong:
            try:
                said = interrupt(question)
            except GraphInterrupt:
                raise wrong from None


def _schemas(tools: list[Any]) -> list[Any]:
    """As OpenAI has them, which every model of LangChain takes; what is a provider's own stays as it is."""
    return [convert_to_openai_tool(tool) if isinstance(tool, BaseTool) else tool for tool in tools if tool is not None]


def _shown(request: ModelRequest[Any], schemas: list[Any]) -> ModelRequest[Any]:
    """The request with these schemas in place of the tools that they differ from; without tools once none may run."""
    given = _schemas(request.tools)
    model = str(getattr(request.model, "_llm_type", ""))
    is_over = _turns.are_tools_disabled(request.messages)
    if is_over and not model.startswith(_NEEDS_TOOLS):
        return request.override(tools=[], tool_choice=None)
    same = [tool if schema == was else schema for tool, was, schema in zip(request.tools, given, schemas, strict=True)]
    shown = request.override(tools=same)
    return shown.override(tool_choice={"type": "none"}) if is_over and model.startswith("anthropic") else shown
