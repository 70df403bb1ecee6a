"""Contexts that are cut or summarized, and runs that go on later: ids, runs and usage stay, callgate hears of it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from agents import Agent as OpenAIAgent
from agents import ModelResponse as AgentsResponse
from agents import Runner, RunState, Usage, function_tool
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart

from callgate.langchain import CallgateMiddleware
from callgate.openai_agents import answer, gated_tools
from callgate.pydantic_ai import CallgateCapability
from callgate.v1.types_pb2 import BUDGET_DIMENSION_TOKENS

from ..conftest import calls, used
from .test_langchain import HELLO, Scripted, ask
from .test_langchain import _message as langchain_message
from .test_openai_agents import Scripted as AgentsModel
from .test_openai_agents import _items
from .test_pydantic_ai import model as pydantic_model

if TYPE_CHECKING:
    from callgate import Client

    from .story import Turn, World

TURNS: list[Turn] = [[("search_orders", {"query": f"page {n}"})] for n in range(5)]


def runs(client: Client, session: str) -> set[str]:
    """In which the session's calls were made."""
    return {client.gate(session).state().run_id}


@pytest.mark.parametrize("is_first", [True, False])
def test_a_summary_of_langchain_is_told_to_callgate(client: Client, session: str, world: World, is_first: bool) -> None:
    """Wherever the middleware stands, the user's message may go: the run stays, and the model gets what was done."""
    turns = Scripted(messages=iter([langchain_message(turn) for turn in [*TURNS, "Done."]]), shown=[])
    summarizer = GenericFakeChatModel(messages=iter([AIMessage("The user wants orders.")] * 9))
    others = [SummarizationMiddleware(summarizer, trigger=("messages", 6), keep=("messages", 2))]
    middleware: Any = [CallgateMiddleware(client)]
    middleware = middleware + others if is_first else others + middleware
    agent = create_agent(turns, world.tools, middleware=middleware, checkpointer=InMemorySaver())
    hello = HumanMessage("Look after my orders.", id=f"hello-{session}")
    answer = ask(agent, {"messages": [hello]}, session, is_async=False)
    assert answer["messages"][-1].content == "Done."
    assert hello.id not in [message.id for message in answer["messages"]]
    (told,) = [one for one in answer["messages"] if one.additional_kwargs.get("lc_source") == "callgate"]
    assert "search_orders" in told.content
    assert len(world.done) == len(calls(client, session)) == 5
    assert runs(client, session) == {hello.id}


def test_a_history_that_is_cut_keeps_its_run_and_its_ids(client: Client, session: str, world: World) -> None:
    seen: list[str] = []

    def cut(messages: list[ModelMessage]) -> list[ModelMessage]:
        """Keeps the last answer of the model with what the tools returned, and a summary."""
        seen.append("\n".join(str(getattr(part, "content", "")) for one in messages for part in one.parts))
        if len(messages) < 4:
            return messages
        return [ModelRequest([UserPromptPart("A summary.")]), *messages[-2:]]

    capabilities: Any = [ProcessHistory(cut), CallgateCapability(client, session_id=session)]
    agent = Agent(pydantic_model([*TURNS, "Done."]), tools=world.tools, capabilities=capabilities)
    result = agent.run_sync("Look after my orders.")
    assert result.output == "Done."
    # Ids begin anew with each turn: none is taken for an earlier one.
    assert len(world.done) == len(calls(client, session)) == 5
    assert len({call.call_id for call in calls(client, session)}) == 5
    assert "search_orders" in "\n".join(
        str(getattr(part, "content", "")) for one in result.all_messages() for part in one.parts
    )


def test_usage_is_booked_once_where_a_graph_goes_on_later(client: Client, session: str, world: World) -> None:
    turn: Turn = [("search_orders", {"query": "late"}), ("refund_order", {"order_id": world.paid})]
    message = langchain_message(turn)
    message.usage_metadata = {  # type: ignore[assignment]
        "input_tokens": 300,
        "output_tokens": 30,
        "total_tokens": 330,
    }
    last = AIMessage("Done.", usage_metadata={"input_tokens": 500, "output_tokens": 5, "total_tokens": 505})
    turns, saver = Scripted(messages=iter([message, last]), shown=[]), InMemorySaver()

    def agent() -> Any:
        """Of another process, as it were."""
        return create_agent(turns, world.tools, middleware=[CallgateMiddleware(client)], checkpointer=saver)

    assert ask(agent(), HELLO, session, is_async=False)["__interrupt__"]
    assert used(client, session, BUDGET_DIMENSION_TOKENS) == 330
    ask(agent(), Command(resume=True), session, is_async=False)
    assert (len(world.done), used(client, session, BUDGET_DIMENSION_TOKENS)) == (2, 330)
    # The last answer's usage goes with the next call.
    turns.messages = iter([langchain_message([("get_weather", {"city": session})]), AIMessage("Done.")])
    ask(agent(), {"messages": [HumanMessage("And the weather?")]}, session, is_async=False)
    assert used(client, session, BUDGET_DIMENSION_TOKENS) == 330 + 505


def test_usage_is_booked_once_where_a_state_is_stored(client: Client, session: str, world: World) -> None:
    class Model(AgentsModel):
        async def get_response(self, *args: Any, **kwargs: Any) -> AgentsResponse:
            self.input = args[1] if len(args) > 1 else kwargs["input"]
            usage = Usage(requests=1, input_tokens=300, output_tokens=30, total_tokens=330)
            return AgentsResponse(output=_items(next(self._turns)), usage=usage, response_id=None)

    turn: Turn = [("search_orders", {"query": "late"}), ("refund_order", {"order_id": world.paid})]
    model = Model([turn, [("search_orders", {"query": "new"})], "Done."])

    def agent() -> OpenAIAgent[Any]:
        tools = [function_tool(tool) for tool in (world.search_orders, world.refund_order)]
        gated = gated_tools(tools, client, session_id=session, interruptions=True)
        return OpenAIAgent("clerk", model=model, tools=gated)

    async def play() -> None:
        result = await Runner.run(agent(), "Look after my orders.")
        state = await RunState.from_string(clerk := agent(), result.to_state().to_string())
        (item,) = state.get_interruptions()
        await answer(state, item, approve=True)
        await Runner.run(clerk, state)

    asyncio.run(play())
    assert len(world.done) == 3
    assert used(client, session, BUDGET_DIMENSION_TOKENS) == 2 * 330


def test_usage_is_booked_once_where_calls_are_deferred(client: Client, session: str, world: World) -> None:
    turn: Turn = [("search_orders", {"query": "late"}), ("refund_order", {"order_id": world.paid})]
    turns = pydantic_model([turn, [("search_orders", {"query": "new"})], "Done."])

    def agent() -> Agent[None, Any]:
        capability = CallgateCapability(client, session_id=session, deferrals=True)
        return Agent(turns, tools=world.tools, capabilities=[capability], output_type=[str, DeferredToolRequests])

    result = agent().run_sync("Look after my orders.")
    (call,) = result.output.approvals
    stored = json.loads(result.all_messages_json())
    assert stored
    results = DeferredToolResults(approvals={call.tool_call_id: True})
    result = agent().run_sync(message_history=result.all_messages(), deferred_tool_results=results)
    assert (result.output, len(world.done)) == ("Done.", 3)
    responses = [one for one in result.all_messages() if isinstance(one, ModelResponse)]
    assert used(client, session, BUDGET_DIMENSION_TOKENS) == sum(one.usage.total_tokens for one in responses[:2])
