"""LangChain and LangGraph: a middleware that puts an agent's tool calls behind a gate.

Needs `pip install 'callgate[langchain]'`.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.errors import GraphBubbleUp
from langgraph.types import interrupt

from . import _langchain_calls as _calls
from . import _questions
from ._framework import Frame
from ._langchain_calls import Answered, Asked
from ._questions import Answer
from .errors import NotStarted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from typing_extensions import Unpack

    from ._call import Call
    from .client import AsyncClient, Client
    from .gate import GateOptions
    from .outcome import Outcome

    Step = Callable[[], Any] | None
    """Something to do that blocks, or None: run the call."""

_HAS_ASYNC_INTERRUPTS = sys.version_info >= (3, 11)
"""In coroutines, LangGraph's `interrupt` knows its graph from Python 3.11 on."""


class CallgateMiddleware(AgentMiddleware[Any, Any, Any]):
    """Puts every tool call of an agent behind a gate: `create_agent(…, middleware=[CallgateMiddleware()])`.

    The model is told what the plane says of a call, and what came of it; a tool that raises does not end the run.
    Waits and advised retries are seen to here. A session is a thread (`thread_id`), or without one the conversation
    that began with the same message; a run is what follows one message of the user.

    A call that a person must approve becomes an `interrupt` where the agent has a checkpointer. Its value names
    `approval_id`, `tool`, `args` and `message`, and has what LangChain's HumanInTheLoopMiddleware puts there. The graph
    goes on with `Command(resume=True)`, `Command(resume={"approve": False, "reason": "…", "by": "ada"})`, or
    `{"decisions": […]}` as HumanInTheLoopMiddleware takes it; any other value says that somebody has answered in
    callgate. Without a checkpointer, and in coroutines before Python 3.11, the call waits for an answer in callgate.
    """

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
                somebody who may approve; else the client.
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
        puts = self._puts(asked)
        gate = self._frame.gate(asked.session_id, asked.options(puts=puts))
        call = self._frame.call(asked.tool, asked.args, execute, call_id=asked.call_id, turn=asked.turn)
        steps = self._steps(asked, call, puts=puts)
        try:
            step = next(steps)
            while True:
                step = steps.send(gate.run_call(call) if step is None else step())
        except StopIteration as end:
            return asked.answer(end.value)
        except NotStarted as waits:
            raise (waits.__cause__ or waits) from None

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
        puts = self._puts(asked) and _HAS_ASYNC_INTERRUPTS
        gate = self._frame.agate(asked.session_id, asked.options(puts=puts))
        call = self._frame.call(asked.tool, asked.args, execute, call_id=asked.call_id, turn=asked.turn)
        steps = self._steps(asked, call, puts=puts)
        try:
            step = next(steps)
            while True:
                step = steps.send(await (gate.run_call(call) if step is None else asyncio.to_thread(step)))
        except StopIteration as end:
            return asked.answer(end.value)
        except NotStarted as waits:
            raise (waits.__cause__ or waits) from None

    def _puts(self, asked: Asked) -> bool:
        """Whether questions become interrupts, which somebody has to be able to answer."""
        return self._interrupts and asked.has_checkpointer

    def _steps(self, asked: Asked, call: Call, *, puts: bool) -> Generator[Step, Any, Outcome]:
        """What is to be done, for threads and event loops alike; it is sent what came of it.

        LangGraph gives the user's answers to the interrupts of a node in their order. So a call that was asked about
        takes its answer when the node runs again, even if somebody has answered in callgate meanwhile: else that answer
        would go to the tool, which may have a question of its own.
        """
        person = self._frame.person
        if puts and asked.is_resumed:
            before = yield partial(person.question, asked.session_id, call.proposed().call_id)
            if before is not None:
                yield from self._ask(before.approval_id, _questions.put_before(before, asked.tool, asked.args))
        while True:
            outcome: Outcome = yield None
            if not puts or outcome.decision != "ASK":
                return outcome
            yield from self._ask(outcome.approval_id, _questions.put(outcome, asked.tool, asked.args))

    def _ask(self, approval_id: str, question: dict[str, Any]) -> Generator[Step, Any, None]:
        if answer := Answer.read(interrupt(question)):
            yield partial(self._frame.person.answer, approval_id, answer)


def _schemas(tools: list[Any]) -> list[Any]:
    """As OpenAI has them, which every model of LangChain takes; what is a provider's own stays as it is."""
    return [convert_to_openai_tool(tool) if isinstance(tool, BaseTool) else tool for tool in tools if tool is not None]


def _shown(request: ModelRequest[Any], schemas: list[Any]) -> ModelRequest[Any]:
    """The request with these schemas in place of the tools that they differ from."""
    given = _schemas(request.tools)
    same = [tool if schema == was else schema for tool, was, schema in zip(request.tools, given, schemas, strict=True)]
    return request.override(tools=same)
