"""Agents that other agents call: their calls pass gates of their own, and count towards the same call tree."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import Agent as OpenAIAgent
from agents import ModelResponse as AgentsResponse
from agents import Runner, Usage, function_tool
from langchain.agents import create_agent
from langchain_core.tools import tool
from pydantic_ai import Agent, RunContext

from callgate.langchain import CallgateMiddleware
from callgate.openai_agents import gated_tools
from callgate.pydantic_ai import CallgateCapability
from callgate.v1.types_pb2 import BUDGET_DIMENSION_TOKENS

from ..conftest import calls, states, used
from .test_langchain import HELLO, ask, model
from .test_openai_agents import Scripted, _items
from .test_pydantic_ai import model as pydantic_model

if TYPE_CHECKING:
    from callgate import Client

    from .story import Turn, World

FIND: Turn = [("search_orders", {"query": "late"})]
ASK: Turn = [("ask_clerk", {"input": "Find the late ones."})]
DROP: Turn = [("drop_table", {"name": "orders"})]


def tree(client: Client, session: str) -> list[list[str]]:
    """The states of the calls of both sessions, which are one call tree."""
    inner = f"{session}-inner"
    assert client.gate(inner).state().root_session_id == session
    return [states(client, session), states(client, inner)]


@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_of_langchain_is_a_tool(client: Client, session: str, world: World, *, is_async: bool) -> None:
    middleware = CallgateMiddleware(client, session_id=f"{session}-inner", parent_session_id=session)
    inner = create_agent(model([FIND, DROP, "Two orders."]), world.tools, middleware=[middleware])

    @tool
    def ask_clerk(input: str) -> str:  # noqa: A002
        """Asks the clerk."""
        return str(inner.invoke({"messages": [("user", input)]})["messages"][-1].content)

    outer = create_agent(model([ASK, ASK, "Done."]), [ask_clerk], middleware=[CallgateMiddleware(client)])
    assert ask(outer, HELLO, session, is_async=is_async)["messages"][-1].content == "Done."
    assert world.done == ["search late"]
    # The second time, the clerk is not asked.
    assert tree(client, session) == [["SUCCEEDED", "REFUSED"], ["SUCCEEDED", "REFUSED"]]


class Counted(Scripted):
    """Each of its responses uses ten tokens."""

    async def get_response(self, *args: Any, **kwargs: Any) -> AgentsResponse:
        usage = Usage(requests=1, input_tokens=9, output_tokens=1, total_tokens=10)
        return AgentsResponse(output=_items(next(self._turns)), usage=usage, response_id=None)


def test_an_agent_of_openai_hands_off(client: Client, session: str, world: World) -> None:
    """Both have gates of one session, so that a repetition by the other agent is one."""
    tools = [function_tool(world.search_orders), function_tool(world.drop_table)]
    first, second = (gated_tools(tools, client, session_id=session, agent_id=name) for name in ("desk", "clerk"))
    clerk = OpenAIAgent("clerk", model=Counted([FIND, DROP, "Done."]), tools=second)
    handoff: Turn = [("transfer_to_clerk", {})]
    desk = OpenAIAgent("desk", model=Counted([FIND, handoff]), tools=first, handoffs=[clerk])
    result = asyncio.run(Runner.run(desk, "Look after my orders."))
    assert (result.final_output, result.last_agent.name) == ("Done.", "clerk")
    assert world.done == ["search late"]
    assert states(client, session) == ["SUCCEEDED", "REFUSED", "REFUSED"]
    # Of all responses but the last, which has no call.
    assert used(client, session, BUDGET_DIMENSION_TOKENS) == 4 * 10


def test_an_agent_of_openai_is_a_tool(client: Client, session: str, world: World) -> None:
    tools = gated_tools(
        [function_tool(world.search_orders), function_tool(world.drop_table)],
        client,
        session_id=f"{session}-inner",
        parent_session_id=session,
    )
    clerk = OpenAIAgent("clerk", model=Counted([FIND, DROP, "Two orders."]), tools=tools)
    asking = clerk.as_tool("ask_clerk", "Asks the clerk.")
    mail = gated_tools([function_tool(world.send_mail), asking], client, session_id=session)
    send: Turn = [("send_mail", {"to": session})]
    desk = OpenAIAgent("desk", model=Counted([ASK, send, "Done."]), tools=mail)
    assert asyncio.run(Runner.run(desk, "Look after my orders.")).final_output == "Done."
    assert world.done == ["search late", f"mail {session}"]
    # The agent itself is no call: its tools are.
    assert [call.tool for call in calls(client, session)] == ["send_mail"]
    assert tree(client, session) == [["SUCCEEDED"], ["SUCCEEDED", "REFUSED"]]
    # Of the two responses of each agent that have calls.
    assert used(client, session, BUDGET_DIMENSION_TOKENS) == 4 * 10


def test_an_agent_of_pydantic_ai_delegates(client: Client, session: str, world: World) -> None:
    capability = CallgateCapability(client, session_id=f"{session}-inner", parent_session_id=session)
    clerk = Agent(pydantic_model([FIND, DROP, "Two orders."]), tools=world.tools, capabilities=[capability])

    async def ask_clerk(ctx: RunContext[None], input: str) -> str:  # noqa: A002
        """Asks the clerk."""
        return (await clerk.run(input, usage=ctx.usage)).output

    capabilities = [CallgateCapability(client, session_id=session)]
    desk = Agent(pydantic_model([ASK, ASK, "Done."]), tools=[ask_clerk], capabilities=capabilities)
    assert desk.run_sync("Look after my orders.").output == "Done."
    assert world.done == ["search late"]
    assert tree(client, session) == [["SUCCEEDED", "REFUSED"], ["SUCCEEDED", "REFUSED"]]
